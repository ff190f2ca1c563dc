// The map: folds of modules, the columns in which they stand, and the ways of the edges.

import assert from "node:assert/strict";
const { test } = Deno;
import { around, lifted, openedAtFirst, treeOf, visibleUnits } from "../../web/mapGraph.ts";
import { layOut, pathsOf } from "../../web/mapLayout.ts";
import { cases } from "./cases.js";

/** @param {string} name @param {string} [operation] */
const node = (name, operation = "Conv2d") => {
  const [layer, call = "0"] = name.split("#");
  return { name, layer, call: Number(call), operation, shape: [1, 4, 8, 8], path: layer, after: [], sources: [], failed: false };
};

/** @param {string} path @param {string} name */
const join = (path, name) => ({ ...node(name, "add"), layer: "", path });

/** @param {any[]} nodes @param {Array<[number, number]>} [edges] */
const graphOf = (nodes, edges = []) => {
  const modules = Object.fromEntries(nodes.flatMap(({ path }) => path.split(".").map((_, n, all) => [all.slice(0, n + 1).join("."), "Block"])));
  return /** @type {any} */ ({ nodes, edges, modules });
};

/** A chain of blocks of two convolutions and a sum each. @param {number} count */
const residual = (count) => {
  const nodes = [{ ...node("input", "input"), path: "" }];
  /** @type {Array<[number, number]>} */
  const edges = [];
  for (let n = 0; n < count; n++) {
    const first = nodes.length;
    nodes.push(node(`body.${n}.one`), node(`body.${n}.two`), join(`body.${n}`, `body.${n}.add`));
    edges.push([first - 1, first], [first, first + 1], [first + 1, first + 2], [first - 1, first + 2]);
  }
  return graphOf(nodes, edges);
};

/** Each layer reads all before it. @param {number} count */
const dense = (count) => {
  const nodes = Array.from({ length: count }, (_, n) => node(`block.${n}`));
  return graphOf(nodes, nodes.flatMap((_, to) => nodes.slice(0, to).map((_, from) => /** @type {[number, number]} */ ([from, to]))));
};

const names = (/** @type {any[]} */ units) => units.map(({ name }) => name);
const closed = () => false;
const everything = () => true;

/** All graphs at several depths. */
function* states() {
  for (const graph of [...Object.values(cases.graphs), residual(3), residual(40), dense(12), dense(40)]) {
    const tree = treeOf(graph);
    for (const isOpen of [closed, everything, (/** @type {any} */ unit) => openedAtFirst(tree, 22).has(unit.key)])
      yield { graph, tree, boxes: visibleUnits(tree, isOpen) };
  }
}

test("each node is in exactly one box, however far it is unfolded", () => {
  for (const { graph, boxes } of states()) {
    const held = boxes.flatMap((box) => box.nodes).sort((a, b) => a - b);
    assert.deepEqual(held, graph.nodes.map((/** @type {any} */ _, /** @type {number} */ n) => n));
    assert.deepEqual(boxes, [...boxes].sort((a, b) => (a.nodes[0] ?? 0) - (b.nodes[0] ?? 0)));
  }
});

test("modules fold; a module of one part is that part; a sum is in the module that adds", () => {
  const tree = treeOf(graphOf([node("a.0"), node("b.0.x"), node("b.0.y"), join("b.0", "b.0.add"), node("b.1")]));
  assert.deepEqual(names(visibleUnits(tree, closed)), ["a.0", "b"]);
  const open = (/** @type {string[]} */ ...keys) => names(visibleUnits(tree, (unit) => keys.includes(unit.key)));
  assert.deepEqual(open("b"), ["a.0", "b.0", "b.1"]);
  assert.deepEqual(open("b", "b.0"), ["a.0", "b.0.x", "b.0.y", "b.0.add", "b.1"]);
  assert.deepEqual(open("b.0"), ["a.0", "b"]);
});

test("many blocks that are alike are a group, which is split when it is opened", () => {
  const tree = treeOf(residual(40));
  const [input, ...groups] = visibleUnits(tree, (unit) => unit.key === "body");
  assert.equal(input?.name, "input");
  assert.deepEqual(names(groups), ["body.0–9", "body.10–19", "body.20–29", "body.30–39"]);
  assert.equal(groups[0]?.type, "Block ×10");
  const boxes = visibleUnits(tree, (unit) => ["body", groups[1]?.key].includes(unit.key));
  assert.equal(boxes.length, 1 + 3 + 10);
  assert.ok(names(boxes).includes("body.14"));
});

test("many layers without modules around them are groups, too", () => {
  /** @param {number} kinds */
  const chain = (kinds) => {
    const nodes = Array.from({ length: 1000 }, (_, n) => node(`body.${n}`, n % kinds ? "Linear" : "Conv2d"));
    return treeOf(graphOf([{ ...node("input", "input"), path: "" }, ...nodes]));
  };
  for (const kinds of [1, 2]) {
    const [input, ...groups] = visibleUnits(chain(kinds), (unit) => unit.key === "body");
    assert.equal(input?.name, "input");
    assert.equal(groups.length, 12);
    assert.equal(groups[0]?.name, "body.0–82");
    assert.equal(groups[0]?.type, kinds === 1 ? "Conv2d ×83" : "Conv2d … Linear");
    assert.ok(groups.every(({ parts }) => parts.length <= 18));
  }
});

test("the calls of a layer are one box until it is opened", () => {
  const tree = treeOf(graphOf([node("head"), node("head#1"), node("last")]));
  assert.deepEqual(visibleUnits(tree, closed).map(({ name, type }) => [name, type]), [["head", "2 calls"], ["last", "Conv2d"]]);
  assert.deepEqual(names(visibleUnits(tree, everything)), ["head", "head#1", "last"]);
});

test("at first all is open to one depth, as far as there is room", () => {
  const tree = treeOf(residual(5));
  assert.deepEqual(openedAtFirst(tree, 22), new Set(["body", "body.0", "body.1", "body.2", "body.3", "body.4"]));
  assert.deepEqual(openedAtFirst(tree, 15), new Set(["body"]));
});

test("an edge leads from box to box exactly if one leads from a node to a node", () => {
  for (const { graph, boxes } of states()) {
    const boxOf = (/** @type {number} */ n) => boxes.findIndex((box) => box.nodes.includes(n));
    const wanted = new Set(graph.edges.map((/** @type {number[]} */ edge) => edge.map(boxOf).join(" ")));
    boxes.forEach((_, n) => void wanted.delete(`${n} ${n}`));
    const found = lifted(boxes, graph.edges).map((edge) => edge.join(" "));
    assert.deepEqual(new Set(found), wanted);
    assert.equal(found.length, wanted.size);
  }
});

/** @param {ReturnType<typeof states> extends Generator<infer T> ? T : never} state */
const laidOut = ({ graph, tree, boxes }) => layOut(tree, boxes, lifted(boxes, graph.edges));

test("each part stands to the right of all that feed it", () => {
  for (const state of states()) {
    const { boxes, edges, columns } = laidOut(state);
    assert.deepEqual(new Set(boxes), new Set(state.boxes));
    assert.equal(boxes.length, state.boxes.length);
    for (const { from, to, outer } of edges) {
      const columnOf = (/** @type {any} */ box) =>
        columns.get(outer)?.findIndex((column) => column.some((part) => part === box || around(box).includes(part))) ?? -1;
      assert.ok(0 <= columnOf(from) && columnOf(from) < columnOf(to), `${from.name} ${to.name}`);
    }
  }
});

test("parallel modules share a column; a module that another one feeds does not", () => {
  const nodes = [node("a.one"), node("b.x"), node("b.y"), node("a.two"), node("last")];
  const tree = treeOf(graphOf(nodes, []));
  const open = visibleUnits(tree, everything);
  const columnsOf = (/** @type {Array<[number, number]>} */ edges) =>
    [...layOut(tree, open, edges).columns].map(([{ name }, columns]) => [name, columns.map(names)]);
  assert.deepEqual(columnsOf([[0, 1], [0, 2], [1, 3], [2, 3], [3, 4]]), [
    ["", [["a"], ["b"], ["last"]]],
    ["a", [["a.one"], ["a.two"]]],
    ["b", [["b.x", "b.y"]]],
  ]);
});

test("a list is not folded if other modules run between its parts", () => {
  const graph = graphOf([node("up.0"), node("join.0"), node("up.1"), node("join.1"), node("down.0"), node("down.1")]);
  for (const list of ["up", "join", "down"]) graph.modules[list] = "ModuleList";
  assert.deepEqual(names(visibleUnits(treeOf(graph), closed)), ["up.0", "join.0", "up.1", "join.1", "down"]);
});

test("skips that run side by side have lanes of their own", () => {
  const graph = dense(6);
  const tree = treeOf(graph);
  const { edges, columns, lanes } = layOut(tree, visibleUnits(tree, everything), graph.edges);
  const [block] = visibleUnits(tree, closed);
  const place = (/** @type {any} */ unit) => columns.get(block)?.findIndex((column) => column.includes(unit)) ?? -1;
  const skips = edges.filter(({ onward }) => !onward);
  assert.equal(skips.length, 10);
  for (const [n, one] of skips.entries())
    for (const other of skips.slice(n + 1))
      assert.ok(one.lane !== other.lane || place(one.to) <= place(other.from) || place(other.to) <= place(one.from));
  assert.equal(lanes.get(block), Math.max(...skips.map(({ lane }) => lane)) + 1);
});

test("an edge enters its box from the left, and goes straight only where no other box stands", () => {
  const nodes = [node("a"), node("b"), node("c"), node("d"), node("e"), node("f")];
  const tree = treeOf(graphOf(nodes));
  // a feeds b and c in parallel; c passes b's successor d; e and f stand in the next line.
  const layout = layOut(tree, visibleUnits(tree, closed), [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4], [0, 4], [4, 5], [0, 5]]);
  const spots = { a: [0, 60], b: [130, 0], c: [130, 120], d: [260, 60], e: [0, 300], f: [130, 300] };
  const at = new Map(layout.boxes.map((unit) => [unit, { x: spots[unit.name][0], y: spots[unit.name][1], width: 100, height: 100 }]));
  const paths = pathsOf(layout, at);
  const found = Object.fromEntries(paths.map(({ from, to, ...path }) => [from.name + to.name, path]));
  const direct = Object.keys(found).filter((name) => found[name].direct);
  assert.deepEqual(direct.sort(), ["ab", "ac", "bd", "ef"]);
  for (const { from, to, points } of paths) {
    const [a, b] = [from, to].map((unit) => /** @type {any} */ (at.get(unit)));
    assert.deepEqual(points[0], [a.x + 100, a.y + 50]);
    assert.deepEqual(points.at(-1), [b.x, b.y + 50]);
    const before = /** @type {any} */ (points.at(-2));
    assert.ok(before[0] < b.x);
  }
  for (const name of ["ae", "ce", "de", "af"]) assert.ok(found[name].points.some(([, y]) => y > 220), `${name} runs below its line`);
});

test("an edge from the line above passes on the left of the frames that begin with its box", () => {
  const tree = treeOf(graphOf([node("a"), node("b.c.x"), node("b.c.y"), node("b.d")]));
  const layout = layOut(tree, visibleUnits(tree, everything), [[0, 1], [1, 2], [2, 3], [0, 2]]);
  const box = (/** @type {number} */ x, /** @type {number} */ y, width = 100, height = 100) => ({ x, y, width, height });
  const places = {
    a: box(0, 0), // b stands in the next line
    b: box(0, 200, 450, 200), "b.c": box(10, 220, 260, 160), "b.c.x": box(20, 240), "b.c.y": box(150, 240), "b.d": box(300, 240),
  };
  const at = new Map([...layout.boxes, ...layout.columns.keys()].map((unit) => [unit, places[unit.name]]));
  const downTo = (/** @type {string} */ name) => {
    const { points } = /** @type {any} */ (pathsOf(layout, at).find(({ from, to }) => from.name === "a" && to.name === name));
    return points.at(-2)[0];
  };
  assert.ok(downTo("b.c.x") < places.b.x);
  assert.ok(places["b.c.x"].x + 100 < downTo("b.c.y") && downTo("b.c.y") < places["b.c.y"].x);
});

test("a thousand layers open as a few boxes", () => {
  const graph = residual(340);
  const tree = treeOf(graph);
  const first = openedAtFirst(tree, 22);
  /** @type {Set<string>} Down to the innermost block. */
  const opened = new Set(first);
  for (;;) {
    const boxes = visibleUnits(tree, (unit) => opened.has(unit.key));
    assert.ok(boxes.length < 60, `${boxes.length} boxes`);
    const closed = boxes.find((box) => box.kind !== "node");
    if (!closed || opened.size > first.size + 8) break;
    opened.add(closed.key);
  }
});
