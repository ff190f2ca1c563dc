// The network's graph folded at its modules: which boxes there are, and the edges between them.

import type { MapAnswer } from "./messages.d.ts";

export type Graph = Pick<MapAnswer, "nodes" | "edges" | "modules">;

/**
 * A box, or what a box is folded of. `nodes` are all the indices in it, in the order of the run.
 */
export interface Unit {
  key: string;
  name: string;
  kind: "node" | "module" | "group";
  type: string;
  nodes: number[];
  parts: Unit[];
  parent: Unit | null;
}

const SIBLINGS = 18; // that stand side by side; more of them are grouped
const GROUP = 12; // parts of a group that is split
const FEW = 4; // boxes that are opened even where there is no room

/** The units around a unit without the whole graph, from the inside out. */
export function around(unit: Unit) {
  const found: Unit[] = [];
  for (let outer = unit.parent; outer?.parent; outer = outer.parent) found.push(outer);
  return found;
}

/** Fold a graph: a tree of modules, whose leaves are the graph's nodes. */
export function treeOf(graph: Graph): Unit {
  const root = unitOf("", "", "module", "", null);
  const modules: Map<string, Unit> = new Map([["", root]]);
  const module = (path: string) => {
    const known = modules.get(path);
    if (known) return known;
    const parent = module(path.slice(0, Math.max(path.lastIndexOf("."), 0)));
    const made = unitOf(path, path, "module", graph.modules[path] ?? "", parent);
    modules.set(path, made);
    parent.parts.push(made);
    return made;
  };
  graph.nodes.forEach((node, index) => {
    const above = node.layer && node.path
      ? node.path.slice(0, Math.max(node.path.lastIndexOf("."), 0))
      : node.path;
    const leaf = unitOf(`=${node.name}`, node.name, "node", node.operation, module(above));
    leaf.parent?.parts.push(leaf);
    for (let each = leaf as Unit | null; each; each = each.parent) each.nodes.push(index);
  });
  simplify(root, graph);
  return root;
}

function unitOf(
  key: string,
  name: string,
  kind: Unit["kind"],
  type: string,
  parent: Unit | null,
): Unit {
  return { key, name, kind, type, nodes: [], parts: [], parent };
}

/** A module of one part is that part; the calls of one layer are a group, and many siblings are several. */
function simplify(unit: Unit, graph: Graph) {
  for (const part of unit.parts) simplify(part, graph);
  const isDissolved = (part: Unit) =>
    part.kind === "module" && (part.parts.length === 1 || isScattered(part, unit));
  unit.parts = unit.parts.flatMap((part) => isDissolved(part) ? part.parts : [part])
    .sort((a, b) => a.nodes[0] - b.nodes[0]);
  const calls: Map<string, Unit[]> = new Map();
  for (const part of unit.parts) {
    const node = part.kind === "node" ? graph.nodes[part.nodes[0]] : undefined;
    const key = node?.layer && node.layer !== "input" ? node.layer : part.key;
    calls.set(key, [...(calls.get(key) ?? []), part]);
  }
  const apart = [...calls].map(([layer, parts]) => {
    const [first] = parts;
    return first && parts.length === 1 ? first : groupOf(parts, layer, `${parts.length} calls`);
  });
  unit.parts = apart.length > SIBLINGS
    ? [...apart.filter(isEnd), ...split(apart.filter((part) => !isEnd(part)))]
    : apart;
  for (const part of unit.parts) part.parent = unit;
}

/**
 * True for a list whose parts run between others: a list is never called, so that its parts stand where they
 * run instead of inside a box.
 */
function isScattered({ type, nodes }: Unit, outer: Unit) {
  const isList = type === "ModuleList" || type === "ModuleDict";
  const [first, last] = [nodes[0], nodes[nodes.length - 1]];
  return isList && outer.nodes.some((n) => first < n && n < last && !nodes.includes(n));
}

function isEnd({ type }: Unit) {
  return type === "input" || type === "output";
}

/** About equally many that run one after the other in each group. */
function split(run: Unit[]) {
  const count = Math.min(Math.ceil(run.length / GROUP), GROUP);
  const ends = Array.from({ length: count + 1 }, (_, n) => Math.round((n * run.length) / count));
  return ends.slice(1).map((end, n) => groupOf(run.slice(ends[n], end)));
}

function groupOf(parts: Unit[], name?: string, type?: string): Unit {
  const first = parts[0];
  const last = parts[parts.length - 1];
  const types = [...new Set(parts.map((part) => part.type))];
  const kind = types.length > 1
    ? `${types[0]} … ${types[types.length - 1]}`
    : `${first.type} ×${parts.length}`;
  const group = unitOf(
    `${first.key}…${last.key}`,
    name ?? `${first.name}–${tailOf(first.name, last.name)}`,
    "group",
    type ?? kind,
    first.parent,
  );
  group.nodes = parts.flatMap((part) => part.nodes).sort((a, b) => a - b);
  group.parts = parts.length > SIBLINGS ? split(parts) : parts;
  for (const part of group.parts) part.parent = group;
  return group;
}

/** The end of the last name of a run: its number alone, where the rest is as in the first. */
function tailOf(first: string, last: string) {
  const end = last.slice(last.lastIndexOf(".") + 1);
  const number = end.match(/\d+$/)?.[0] ?? "";
  const stem = last.slice(0, last.length - number.length);
  return number && first.replace(/\d+$/, "") === stem ? number : end;
}

/** The visible boxes, in the order of the run. */
export function visibleUnits(root: Unit, isOpen: (unit: Unit) => boolean) {
  const boxesIn = (unit: Unit): Unit[] =>
    unit.parts.flatMap((part) => part.kind === "node" || !isOpen(part) ? [part] : boxesIn(part));
  return boxesIn(root).sort((a, b) => a.nodes[0] - b.nodes[0]);
}

/**
 * The keys of those that are open at first: all down to one depth, as deep as there is room.
 * @param most Boxes.
 */
export function openedAtFirst(root: Unit, most: number) {
  let found = new Set<string>();
  for (;;) {
    const next = new Set(found);
    const boxes = visibleUnits(root, (unit) => found.has(unit.key));
    for (const box of boxes) if (box.kind === "module") next.add(box.key);
    if (next.size === found.size) return found;
    const more = visibleUnits(root, (unit) => next.has(unit.key));
    if (more.length > most && boxes.length > FEW) return found;
    found = next;
  }
}

/**
 * The graph's edges between boxes, each once; those inside a box are left out.
 * @returns Indices of boxes.
 */
export function lifted(boxes: Unit[], edges: Array<[number, number]>): Array<[number, number]> {
  const boxOf: Map<number, number> = new Map();
  boxes.forEach((box, place) => {
    for (const node of box.nodes) boxOf.set(node, place);
  });
  const found: Map<string, [number, number]> = new Map();
  for (const [start, end] of edges) {
    const [from, to] = [boxOf.get(start), boxOf.get(end)];
    if (from !== undefined && to !== undefined && from !== to) {
      found.set(`${from} ${to}`, [from, to]);
    }
  }
  return [...found.values()].sort(([a, b], [c, d]) => a - c || b - d);
}
