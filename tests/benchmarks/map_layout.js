// The milliseconds in which a map is folded and laid out, cold and warm, as JSON.

import { loadDagre } from "../../hookviz/static/dagre.js";
import { lifted, openedAtFirst, reduced, treeOf, visibleUnits } from "../../web/mapGraph.ts";
import { placed } from "../../web/mapLayout.ts";

const graph = JSON.parse(Deno.readTextFileSync(Deno.args[0]));
const [, block, rounds] = Deno.args;
const BOX = { width: 100, height: 100 };

/** @param {() => any} act */
const timed = (act) => {
  const start = performance.now();
  const made = act();
  return { made, took: performance.now() - start };
};

/** @param {any} dagre @param {any} tree @param {Set<string>} open */
const lay = (dagre, tree, open) => {
  const { boxes } = visibleUnits(tree, (unit) => open.has(unit.key));
  const edges = reduced(boxes.length, lifted(boxes, graph.edges));
  placed(dagre, boxes, boxes.map(() => BOX), edges, 1240);
};

const first = timed(() => {
  const dagre = loadDagre();
  const tree = treeOf(graph);
  const open = openedAtFirst(tree, 22);
  lay(dagre, tree, open);
  return { dagre, tree, open };
});
const { dagre, tree, open } = first.made;
const more = new Set([...open, block]);
const second = timed(() => lay(dagre, tree, more));
const warm = Array.from({ length: Number(rounds) }, () => timed(() => lay(dagre, tree, more)).took)
  .sort((a, b) => a - b);

/** All nodes and edges, by dagre alone. */
const flat = () => {
  const whole = new dagre.Graph();
  whole.setGraph({ rankdir: "LR" });
  whole.setDefaultEdgeLabel(() => ({}));
  graph.nodes.forEach((/** @type {any} */ _, /** @type {number} */ n) =>
    whole.setNode(String(n), { ...BOX })
  );
  for (const [from, to] of graph.edges) whole.setEdge(String(from), String(to));
  dagre.layout(whole);
};
const all = graph.edges.length < 400 ? timed(flat).took : null;
console.log(
  JSON.stringify({
    nodes: graph.nodes.length,
    edges: graph.edges.length,
    first: first.took,
    block: second.took,
    warm: warm[Math.floor(warm.length / 2)],
    flat: all,
  }),
);
