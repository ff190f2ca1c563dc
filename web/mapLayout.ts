// Where the boxes of a map stand: dagre orders them from left to right, and what is too long for the
// width is broken into lines, as a text is.

import { around } from "./mapGraph.ts";
import type { Unit } from "./mapGraph.ts";

/** What is used of the library dagre. */
export interface Dagre {
  Graph: new () => DagreGraph;
  layout: (graph: DagreGraph) => void;
}
interface DagreGraph {
  setGraph: (options: Record<string, unknown>) => void;
  setDefaultEdgeLabel: (label: () => unknown) => void;
  setNode: (name: string, size: Size) => void;
  setEdge: (from: string, to: string) => void;
  node: (name: string) => Point;
  edge: (from: string, to: string) => { points: Point[] };
}
interface Point {
  x: number;
  y: number;
}

interface Size {
  width: number;
  height: number;
}
/** Left, top, and size. */
export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}
type Points = Array<[number, number]>;
type Edge = [from: number, to: number];
export interface Path {
  from: number;
  to: number;
  skip: boolean;
  points: Points;
  smooth: boolean;
}
/** Around an opened unit's boxes. */
export type Frame = { unit: Unit } & Box;
export type Placed = { boxes: Box[]; lines: number[]; paths: Path[]; frames: Frame[] } & Size;

const BETWEEN = 25; // pixels between columns
const APART = 14; // between the boxes of a column
const TITLE = 17; // above boxes for each opened module's name
const PAD = 6; // between a frame and what is in it
const LANE = 7; // between edges that run side by side
const LANES = 9; // more of them come closer
const BORDER = 14;
const CUT = 8; // the most that a cut costs; a line costs 6

/**
 * Place boxes and edges.
 * @param dagre The library.
 * @param sizes Of each unit's box.
 * @param room Pixels of a line.
 */
export function placed(
  dagre: Dagre,
  units: Unit[],
  sizes: Size[],
  { kept, skips }: { kept: Edge[]; skips: Edge[] },
  room: number,
): Placed {
  let { boxes, ways } = inOneLine(dagre, sizes, kept);
  const extra = roomForTitles(units, boxes);
  if (extra.some(Boolean)) ({ boxes, ways } = inOneLine(dagre, sizes, kept, extra));
  const depth = Math.max(0, ...units.map((unit) => around(unit).length));
  const lines = broken(
    columnsOf(boxes),
    units,
    [...kept, ...skips],
    room - 2 * BORDER - BETWEEN - 2 * PAD * depth,
  );
  const held = heldBy(units, lines, boxes);
  // An edge within a line goes straight through the columns; all others have a lane below a line.
  const isStraight = ([from, to]: Edge) => lines[from] === lines[to];
  const rows = rowsOf(boxes, lines, held, [
    ...kept.filter((edge) => !isStraight(edge)),
    ...skips,
  ]);
  boxes.forEach((box, n) => {
    box.x += rows[lines[n]].right;
    box.y += rows[lines[n]].down;
  });
  const pathOf = (edge: Edge, skip: boolean): Path => {
    const [from, to] = edge;
    const { right, down } = rows[lines[from]];
    const smooth = !skip && isStraight(edge);
    const points = smooth
      ? ways.get(edge.join(" "))!.map(([x, y]): [number, number] => [x + right, y + down])
      : below(edge, boxes, lines, rows, skip);
    return { from, to, skip, smooth, points };
  };
  const paths = [
    ...kept.map((edge) => pathOf(edge, false)),
    ...skips.map((edge) => pathOf(edge, true)),
  ];
  const frames = held.map((each) => frameOf(each, boxes));
  const right = Math.max(
    0,
    ...[...boxes, ...frames].map(({ x, width }) => x + width),
    ...paths.flatMap(({ points }) => points.map(([x]) => x)),
  );
  const height = rows[rows.length - 1]?.end ?? 0;
  return { boxes, lines, paths, frames, width: right + BORDER, height };
}

/**
 * Boxes, and the ways of edges, which leave a box to the right and enter one from the left.
 * @param extra Pixels above each box.
 */
function inOneLine(
  dagre: Dagre,
  sizes: Size[],
  kept: Edge[],
  extra: number[] = [],
) {
  const graph = new dagre.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: APART, ranksep: BETWEEN, edgesep: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  sizes.forEach(({ width, height }, n) =>
    graph.setNode(String(n), { width, height: height + (extra[n] ?? 0) })
  );
  for (const [from, to] of kept) graph.setEdge(String(from), String(to));
  if (sizes.length) dagre.layout(graph);
  const boxes = sizes.map((size, n) => {
    const { x, y } = graph.node(String(n));
    return { x: x - size.width / 2, y: y + ((extra[n] ?? 0) - size.height) / 2, ...size };
  });
  const columns = columnsOf(boxes);
  const ways: Map<string, Points> = new Map();
  for (const [from, to] of kept) {
    const [one, other] = [boxes[from], boxes[to]] as [Box, Box];
    // Of the points in between, those within a column: straight past its boxes.
    const points = graph.edge(String(from), String(to)).points.slice(1, -1);
    const past = points.filter((_, n) => n % 2).flatMap(({ x, y }): Points => {
      const column = columns.find((each) => Math.abs(each.centre - x) < 1);
      return column ? [[column.left, y], [column.right, y]] : [[x, y]];
    });
    ways.set(`${from} ${to}`, [[one.x + one.width, one.y + one.height / 2], ...past, [
      other.x,
      other.y + other.height / 2,
    ]]);
  }
  return { boxes, ways };
}

/**
 * The pixels that are missing above each box for the names and edges of frames that it does not
 * share with the box above.
 */
function roomForTitles(units: Unit[], boxes: Box[]) {
  const extra = units.map(() => 0);
  for (const column of columnsOf(boxes)) {
    const order = column.boxes.sort((a, b) => boxes[a].y - boxes[b].y);
    for (const [place, n] of order.entries()) {
      const above = order[place - 1];
      if (above === undefined) continue;
      const [upper, lower] = [around(units[above]), around(units[n])];
      const own = lower.filter((each) => !upper.includes(each)).length;
      const others = upper.filter((each) => !lower.includes(each)).length;
      extra[n] = own * (TITLE + 2) + others * PAD;
    }
  }
  return extra;
}

/** The boxes by their column, from left to right. */
function columnsOf(boxes: Box[]) {
  const order = boxes.map((box, n) => ({ n, centre: box.x + box.width / 2, ...box })).sort((a, b) =>
    a.centre - b.centre
  );
  const columns: Array<{ centre: number; left: number; right: number; boxes: number[] }> = [];
  for (const { n, centre, x, width } of order) {
    const last = columns[columns.length - 1];
    if (last && centre - last.centre < 1) {
      last.left = Math.min(last.left, x);
      last.right = Math.max(last.right, x + width);
      last.boxes.push(n);
    } else columns.push({ centre, left: x, right: x + width, boxes: [n] });
  }
  return columns;
}

/**
 * Break columns into lines where few edges cross and no opened unit is cut, about equally long.
 * @returns Each box's line.
 */
export function broken(
  columns: ReturnType<typeof columnsOf>,
  units: Unit[],
  edges: Edge[],
  room: number,
): number[] {
  const columnOf = new Array(units.length).fill(0);
  columns.forEach((column, c) => {
    for (const n of column.boxes) columnOf[n] = c;
  });
  const crossing = columns.map(() => -2); // what the cut before a column costs; one edge is free
  const cross = (ends: number[], cost: number) => {
    for (let c = Math.min(...ends) + 1; c <= Math.max(...ends); c++) {
      crossing[c] = crossing[c] + cost;
    }
  };
  for (const [from, to] of edges) cross([columnOf[from], columnOf[to]], 2);
  const opened: Map<Unit, number[]> = new Map();
  units.forEach((unit, n) => {
    for (const outer of around(unit)) {
      opened.set(outer, [...(opened.get(outer) ?? []), columnOf[n]]);
    }
  });
  for (const ends of opened.values()) cross(ends, 1);
  const wide = (a: number, b: number) => columns[b].right - columns[a].left;
  const cost = [0];
  const start = [0];
  for (let end = 1; end <= columns.length; end++) {
    cost[end] = Infinity;
    for (let first = end - 1; first >= 0; first--) {
      const over = wide(first, end - 1) - room;
      if (over > 0 && first < end - 1) break;
      const own = cost[first] + 6 + 4 * (over / room) ** 2 +
        (first ? Math.min(crossing[first], CUT) : 0);
      if (own < cost[end]) {
        cost[end] = own;
        start[end] = first;
      }
    }
  }
  const lines = new Array(units.length).fill(0);
  const firsts = [];
  for (let end = columns.length; end > 0; end = start[end]) firsts.unshift(start[end]);
  firsts.forEach((first, line) => {
    for (const column of columns.slice(first)) for (const n of column.boxes) lines[n] = line;
  });
  return lines;
}

/** The boxes in a frame, and how many frames are nested above them. */
interface Held {
  unit: Unit;
  line: number;
  own: number[];
  above: number;
}

/**
 * Opened units around boxes: a frame in each line in which they have some, and several where boxes
 * of other modules stand between. The outer ones come first.
 */
function heldBy(units: Unit[], lines: number[], boxes: Box[]): Held[] {
  const byLine: Map<string, { unit: Unit; line: number; own: number[] }> = new Map();
  units.forEach((inner, n) => {
    for (const unit of around(inner)) {
      const key = `${lines[n]} ${unit.key}`;
      const known = byLine.get(key) ?? { unit, line: lines[n], own: [] };
      known.own.push(n);
      byLine.set(key, known);
    }
  });
  const found = [...byLine.values()].flatMap(({ unit, line, own }) => {
    const others = boxes.filter((_, n) => lines[n] === line && !around(units[n]).includes(unit));
    const runs: number[][] = [];
    for (const n of own.sort((a, b) => boxes[a].x - boxes[b].x)) {
      const last = runs[runs.length - 1];
      if (last && !others.some((other) => meet(other, boxAround([...last, n], boxes)))) {
        last.push(n);
      } else runs.push([n]);
    }
    return runs.map((own) => ({ unit, line, own, depth: around(unit).length }));
  });
  return found
    .map((one) => {
      const inner = found.filter(({ unit, line }) =>
        line === one.line && around(unit).includes(one.unit)
      );
      return { ...one, above: Math.max(0, ...inner.map(({ depth }) => depth - one.depth)) };
    })
    .sort((a, b) => a.depth - b.depth);
}

function meet(one: Box, other: Box) {
  return one.x < other.x + other.width && other.x < one.x + one.width &&
    one.y < other.y + other.height && other.y < one.y + one.height;
}

/** The box around boxes. */
function boxAround(own: number[], boxes: Box[]): Box {
  const all = own.map((n) => boxes[n]);
  const x = Math.min(...all.map((box) => box.x));
  const y = Math.min(...all.map((box) => box.y));
  return {
    x,
    y,
    width: Math.max(...all.map((box) => box.x + box.width)) - x,
    height: Math.max(...all.map((box) => box.y + box.height)) - y,
  };
}

/** How far a line's boxes are moved; where they begin and end; where the lanes below end. */
export interface Row {
  right: number;
  down: number;
  top: number;
  bottom: number;
  end: number;
  lanes: Map<string, number>;
  count: number;
}

function rowsOf(boxes: Box[], lines: number[], held: Held[], edges: Edge[]): Row[] {
  const count = Math.max(-1, ...lines) + 1;
  const rows: Row[] = [];
  let y = BORDER / 2;
  for (let line = 0; line < count; line++) {
    const own = boxes.filter((_, n) => lines[n] === line);
    const top = Math.min(...own.map((box) => box.y));
    const bottom = Math.max(...own.map((box) => box.y + box.height));
    const left = Math.min(...own.map((box) => box.x));
    const above = Math.max(
      0,
      ...held.filter((each) => each.line === line).map((each) => each.above + 1),
    );
    const lanes = lanesOf(line, boxes, lines, edges);
    const begin = y + above * TITLE + (above ? PAD : 0);
    const most = Math.max(0, ...lanes.values()) + (lanes.size ? 1 : 0);
    const used = LANE * Math.min(most, LANES);
    const end = begin + bottom - top + above * PAD + (used ? used + LANE : 0) + PAD;
    const inset = BORDER + PAD * Math.max(0, above - 1);
    rows.push({
      right: inset - left,
      down: begin - top,
      top: begin,
      bottom: begin + bottom - top + above * PAD,
      end,
      lanes,
      count: most,
    });
    y = end + APART / 2;
  }
  return rows;
}

/** The lane below a line of each edge that runs there: short ones are nearest to the boxes. */
function lanesOf(line: number, boxes: Box[], lines: number[], edges: Edge[]) {
  const runs = edges.flatMap((edge) => {
    const [a, b] = edge.map((n) => lines[n]);
    if (a !== line && (a === b || b - 1 !== line)) return [];
    const ends = edge.map((n) => boxes[n].x + boxes[n].width / 2);
    const [low, high] = a === b ? [Math.min(...ends), Math.max(...ends)] : [-Infinity, Infinity];
    return [{ key: edge.join(" "), low, high }];
  });
  runs.sort((one, other) => one.high - one.low - (other.high - other.low));
  const lanes: Map<string, number> = new Map();
  const taken: Array<Array<{ low: number; high: number }>> = [];
  for (const { key, low, high } of runs) {
    let lane = 0;
    while (taken[lane]?.some((each) => each.low < high && low < each.high)) lane += 1;
    (taken[lane] ??= []).push({ low, high });
    lanes.set(key, lane);
  }
  return lanes;
}

/** The way of an edge below the boxes: in its line, or on to another line. */
function below(edge: Edge, boxes: Box[], lines: number[], rows: Row[], skip: boolean): Points {
  const [from, to] = edge;
  const [a, b] = [lines[from], lines[to]];
  const key = edge.join(" ");
  const lane = laneAt(rows, a, key);
  const out = skip ? downFrom(from, boxes, lines, lane, 1) : beyond(from, boxes, lines, lane);
  if (a === b) return [...out, ...downFrom(to, boxes, lines, lane, -1).reverse()];
  // A skip enters its box from above, any other edge from the left, between the columns.
  const { x, y, width, height } = boxes[to];
  const at = skip ? x + width / 2 - Math.min(8, width / 5) : x - BETWEEN / 2;
  const end: Points = skip ? [[at, y]] : [[at, y + height / 2], [x, y + height / 2]];
  if (b === a + 1) return [...out, [at, lane], ...end];
  const before = b > 0 ? laneAt(rows, b - 1, key) : rows[0].top - PAD;
  const beside = Math.max(...boxes.map((box) => box.x + box.width)) + BETWEEN / 2 +
    (LANE * Math.min(rows[a].lanes.get(key) ?? 0, LANES)) / 2;
  return [...out, [beside, lane], [beside, before], [at, before], ...end];
}

/**
 * From a box down to a lane: out of its bottom, or, where another box stands below, out of a side.
 * @param side Right of the middle, or left.
 */
function downFrom(n: number, boxes: Box[], lines: number[], lane: number, side: 1 | -1): Points {
  const box = boxes[n];
  const bottom = box.y + box.height;
  const blocked = boxes.some((each, m) =>
    lines[m] === lines[n] && each.y > bottom - 1 && each.x < box.x + box.width &&
    box.x < each.x + each.width
  );
  if (!blocked) {
    const x = box.x + box.width / 2 + side * Math.min(8, box.width / 5);
    return [[x, bottom], [x, lane]];
  }
  const y = box.y + box.height / 2 + Math.min(8, box.height / 4);
  const edge = side > 0 ? box.x + box.width : box.x;
  const widest = boxes.filter((each, m) =>
    lines[m] === lines[n] && Math.abs(each.x + each.width / 2 - box.x - box.width / 2) < 1
  );
  const x = side > 0
    ? Math.max(...widest.map((each) => each.x + each.width)) + BETWEEN / 3
    : Math.min(...widest.map((each) => each.x)) - BETWEEN / 3;
  return [[edge, y], [x, y], [x, lane]];
}

/** Out of a box to the right, past its line's end, and down to a lane. */
function beyond(n: number, boxes: Box[], lines: number[], lane: number): Points {
  const { x, y, width, height } = boxes[n];
  const right =
    Math.max(...boxes.map((box, m) => (lines[m] === lines[n] ? box.x + box.width : 0))) +
    BETWEEN / 2;
  return [[x + width, y + height / 2], [right, y + height / 2], [right, lane]];
}

function laneAt(rows: Row[], line: number, key: string) {
  const row = rows[line];
  const lane = row.lanes.get(key) ?? 0;
  return row.bottom + LANE + lane * LANE * Math.min(1, LANES / Math.max(row.count, 1));
}

function frameOf({ unit, own, above }: Held, boxes: Box[]): Frame {
  const { x, y, width, height } = boxAround(own, boxes);
  const pad = PAD * (above + 1) - 1;
  const title = (above + 1) * TITLE + 2;
  return {
    unit,
    x: x - pad,
    y: y - title,
    width: width + 2 * pad,
    height: height + title + pad,
  };
}
