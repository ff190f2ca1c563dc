// The map: folds of modules, edges between them, and where the boxes stand.

import assert from "node:assert/strict";
const { test } = Deno;
import { loadDagre } from "../../hookviz/static/dagre.js";
import { lifted, openedAtFirst, reduced, treeOf, visibleUnits } from "../../web/mapGraph.ts";
import { placed } from "../../web/mapLayout.ts";
import { cases } from "./cases.js";

const dagre = loadDagre();

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
  return /** @type {any} */ ({ nodes, edges, modules, verdict: "" });
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
      yield { graph, tree, boxes: visibleUnits(tree, isOpen).boxes };
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
  assert.deepEqual(names(visibleUnits(tree, closed).boxes), ["a.0", "b"]);
  const open = (/** @type {string[]} */ ...keys) => names(visibleUnits(tree, (unit) => keys.includes(unit.key)).boxes);
  assert.deepEqual(open("b"), ["a.0", "b.0", "b.1"]);
  assert.deepEqual(open("b", "b.0"), ["a.0", "b.0.x", "b.0.y", "b.0.add", "b.1"]);
  assert.deepEqual(open("b.0"), ["a.0", "b"]);
});

test("many blocks that are alike are a group, which is split when it is opened", () => {
  const tree = treeOf(residual(40));
  const [input, ...groups] = visibleUnits(tree, (unit) => unit.key === "body").boxes;
  assert.equal(input?.name, "input");
  assert.deepEqual(names(groups), ["body.0–9", "body.10–19", "body.20–29", "body.30–39"]);
  assert.equal(groups[0]?.type, "Block ×10");
  const { boxes } = visibleUnits(tree, (unit) => ["body", groups[1]?.key].includes(unit.key));
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
    const [input, ...groups] = visibleUnits(chain(kinds), (unit) => unit.key === "body").boxes;
    assert.equal(input?.name, "input");
    assert.equal(groups.length, 12);
    assert.equal(groups[0]?.name, "body.0–82");
    assert.equal(groups[0]?.type, kinds === 1 ? "Conv2d ×83" : "Conv2d … Linear");
    assert.ok(groups.every(({ parts }) => parts.length <= 18));
  }
});

test("the calls of a layer are one box until it is opened", () => {
  const tree = treeOf(graphOf([node("head"), node("head#1"), node("last")]));
  assert.deepEqual(visibleUnits(tree, closed).boxes.map(({ name, type }) => [name, type]), [["head", "2 calls"], ["last", "Conv2d"]]);
  assert.deepEqual(names(visibleUnits(tree, everything).boxes), ["head", "head#1", "last"]);
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

/** @param {number} from @param {number} to @param {number[][]} edges @returns {boolean} */
const reaches = (from, to, edges) => {
  const seen = new Set([from]);
  for (const each of seen) for (const [a, b] of edges) if (a === each) seen.add(/** @type {number} */ (b));
  return seen.has(to) && from !== to;
};

test("an edge is a skip exactly if its end is reached without it, or lies before its start", () => {
  for (const { graph, boxes } of states()) {
    if (boxes.length > 30) continue; // the check is slow
    const edges = lifted(boxes, graph.edges);
    const { kept, skips } = reduced(boxes.length, edges);
    assert.equal(kept.length + skips.length, edges.length);
    const forward = edges.filter(([a, b]) => a < b);
    for (const [from, to] of edges) {
      const others = forward.filter(([a, b]) => a !== from || b !== to);
      const skip = skips.some(([a, b]) => a === from && b === to);
      assert.equal(skip, from > to || reaches(from, to, others), `${from} ${to}`);
    }
  }
});

test("boxes stand in the order of the edges, apart from each other, within the width", () => {
  for (const { graph, boxes } of states()) {
    if (boxes.length > 60) continue; // as many are never shown
    const edges = reduced(boxes.length, lifted(boxes, graph.edges));
    const sizes = boxes.map((_, n) => (n % 3 ? { width: 100, height: 100 } : { width: 66, height: 40 }));
    for (const room of [360, 1240]) {
      const { boxes: places, lines, paths, frames, width, height } = placed(dagre, boxes, sizes, edges, room);
      const at = (/** @type {number} */ n) => /** @type {any} */ (places[n]);
      for (const [from, to] of edges.kept) {
        assert.ok(/** @type {number} */ (lines[from]) <= /** @type {number} */ (lines[to]));
        if (lines[from] === lines[to]) assert.ok(at(from).x + at(from).width < at(to).x);
        else assert.ok(at(from).y + at(from).height < at(to).y);
      }
      for (const [n, one] of places.entries())
        for (const other of places.slice(n + 1))
          assert.ok(one.x + one.width <= other.x || other.x + other.width <= one.x || one.y + one.height <= other.y || other.y + other.height <= one.y);
      for (const each of [...places, ...frames]) assert.ok(each.x >= 0 && each.y >= 0 && each.x + each.width <= width && each.y + each.height <= height);
      assert.equal(paths.length, edges.kept.length + edges.skips.length);
      for (const { from, to, points } of paths) {
        const inside = (/** @type {number} */ n, /** @type {any} */ [x, y]) => x >= at(n).x - 1 && x <= at(n).x + at(n).width + 1 && y >= at(n).y - 1 && y <= at(n).y + at(n).height + 1;
        assert.ok(inside(from, points[0]) && inside(to, points[points.length - 1]));
        assert.ok(points.every(([x, y]) => Number.isFinite(x + y)));
      }
    }
  }
});

test("a frame holds its unit's boxes of a line", () => {
  const tree = treeOf(residual(3));
  const { boxes } = visibleUnits(tree, everything);
  const edges = reduced(boxes.length, lifted(boxes, residual(3).edges));
  const { frames, boxes: places } = placed(dagre, boxes, boxes.map(() => ({ width: 100, height: 100 })), edges, 5000);
  assert.deepEqual(names(frames.map(({ unit }) => unit)).sort(), ["body", "body.0", "body.1", "body.2"]);
  for (const frame of frames)
    for (const [n, box] of boxes.entries()) {
      if (!box.name.startsWith(`${frame.unit.name}.`)) continue;
      const { x, y, width, height } = /** @type {any} */ (places[n]);
      assert.ok(frame.x < x && frame.y < y && frame.x + frame.width > x + width && frame.y + frame.height > y + height);
    }
});

test("a thousand layers open as a few boxes, none over another", () => {
  const graph = residual(340);
  const tree = treeOf(graph);
  const first = openedAtFirst(tree, 22);
  /** @type {Set<string>} Down to the innermost block. */
  const opened = new Set(first);
  for (;;) {
    const { boxes } = visibleUnits(tree, (unit) => opened.has(unit.key));
    assert.ok(boxes.length < 60, `${boxes.length} boxes`);
    const { kept, skips } = reduced(boxes.length, lifted(boxes, graph.edges));
    const places = placed(dagre, boxes, boxes.map(() => ({ width: 104, height: 100 })), { kept, skips }, 900).boxes;
    for (const [n, one] of places.entries())
      for (const other of places.slice(0, n))
        assert.ok(one.x >= other.x + other.width || other.x >= one.x + one.width || one.y >= other.y + other.height || other.y >= one.y + one.height);
    const closed = boxes.find((box) => box.kind !== "node");
    if (!closed || opened.size > first.size + 8) break;
    opened.add(closed.key);
  }
});
