// Where the map stands: the parts of an opened unit form columns, which the browser breaks into lines as it
// does with words; here are the columns, and the ways of the edges between what the browser has placed.

import { around } from "./mapGraph.ts";
import type { Unit } from "./mapGraph.ts";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}
export interface Edge {
  from: Unit;
  to: Unit;
  /** The innermost opened unit around both. */
  outer: Unit;
  /** True if it leads from the end of a column to the start of the next one. */
  onward: boolean;
  /** Below a line of `outer`, where it runs if it does not go straight. */
  lane: number;
}
export interface Layout {
  /** From left to right, and within a column from top to bottom. */
  boxes: Unit[];
  edges: Edge[];
  /** Of each opened unit, the outermost one first. */
  columns: Map<Unit, Unit[][]>;
  lanes: Map<Unit, number>;
}
type Points = Array<[number, number]>;
export interface Path extends Edge {
  points: Points;
  /** Straight from box to box; else it passes below others. */
  direct: boolean;
}

const LANES = 9; // the most below a line; further edges share the last one
const LANE = 7; // pixels between edges that run side by side
const GAP = 20; // between columns, where edges turn

/**
 * Arrange the boxes of a map.
 * @param root Everything.
 * @param boxes Those that are visible, in the order of the run.
 * @param edges Indices of boxes.
 */
export function layOut(root: Unit, boxes: Unit[], edges: Array<[number, number]>): Layout {
  const columns: Layout["columns"] = new Map();
  const place: Map<Unit, number> = new Map();
  for (const unit of new Set([root, ...boxes.flatMap((box) => around(box).reverse())])) {
    const own = columnsOf(unit, boxes, edges);
    columns.set(unit, own);
    own.forEach((column, n) => column.forEach((part) => place.set(part, n)));
  }
  const ordered = (unit: Unit): Unit[] => columns.get(unit)?.flat().flatMap(ordered) ?? [unit];
  const isLast = (unit: Unit) => place.get(unit) === columns.get(unit.parent!)!.length - 1;
  const laid = edges.map(([one, other]) => {
    const [from, to] = [boxes[one], boxes[other]];
    const outer = around(from).find((unit) => around(to).includes(unit)) ?? root;
    const ends = [partOf(outer, from)!, partOf(outer, to)!];
    const [low, high] = ends.map((part) => place.get(part)!);
    const onward = high === low + 1 && within(from, ends[0]).every(isLast) &&
      within(to, ends[1]).every((unit) => place.get(unit) === 0);
    return {
      from,
      to,
      outer,
      onward,
      lane: 0,
      low: Math.min(low, high),
      high: Math.max(low, high),
    };
  });
  const lanes: Layout["lanes"] = new Map();
  for (const outer of columns.keys()) {
    const own = laid.filter((edge) => edge.outer === outer && !edge.onward);
    own.sort((a, b) => a.high - a.low - (b.high - b.low)); // short ones are nearest to the boxes
    for (const edge of own) {
      const meets = ({ low, high, lane }: typeof edge) =>
        lane === edge.lane && low < edge.high && edge.low < high;
      const before = own.slice(0, own.indexOf(edge));
      while (edge.lane < LANES && before.some(meets)) edge.lane += 1;
    }
    lanes.set(outer, Math.max(0, ...own.map(({ lane }) => lane + 1)));
  }
  return { boxes: ordered(root), edges: laid, columns, lanes };
}

/** The part of a unit that a box is, or is in. */
function partOf(outer: Unit, box: Unit) {
  return [box, ...around(box)].find(({ parent }) => parent === outer);
}

/** A box and the units around it, up to a part without that part. */
function within(box: Unit, part: Unit) {
  const chain = [box, ...around(box)];
  return chain.slice(0, chain.indexOf(part));
}

/** Each part stands to the right of all that feed it, also of those that feed it through other units. */
function columnsOf(outer: Unit, boxes: Unit[], edges: Array<[number, number]>) {
  const parts = boxes.map((box) => partOf(outer, box));
  const before = boxes.map(() => new Set<Unit>()); // the parts that feed each box
  const feeds = new Map(outer.parts.map((part) => [part, new Set<Unit>()]));
  boxes.forEach((_, to) => {
    for (const [from, end] of edges) {
      if (end !== to || from >= to) continue;
      for (const source of [...before[from], parts[from]]) if (source) before[to].add(source);
    }
    const part = parts[to];
    for (const source of before[to]) if (part && source !== part) feeds.get(part)!.add(source);
  });
  const place: Map<Unit, number> = new Map();
  const placeOf = (part: Unit): number => {
    if (!place.has(part)) {
      place.set(part, 0);
      // Where two feed each other, the one that runs first stands first.
      const sources = [...feeds.get(part)!].filter((source) =>
        source.nodes[0] < part.nodes[0] || !feeds.get(source)!.has(part)
      );
      place.set(part, Math.max(0, ...sources.map((source) => placeOf(source) + 1)));
    }
    return place.get(part)!;
  };
  const columns: Unit[][] = [];
  for (const part of outer.parts) (columns[placeOf(part)] ??= []).push(part);
  return columns.filter(Boolean);
}

/** The outermost unit whose first column holds the box, or the box itself. */
function entered(box: Unit, columns: Layout["columns"]): Unit {
  const { parent } = box;
  const isFirst = parent?.parent && columns.get(parent)![0].includes(box);
  return isFirst ? entered(parent, columns) : box;
}

/** A line of columns. */
interface Line {
  top: number;
  bottom: number;
  left: number;
  above: Line | null;
}

/**
 * The ways of the edges.
 * @param at Where the browser has placed boxes and opened units.
 */
export function pathsOf({ boxes, edges, columns }: Layout, at: Map<Unit, Box>): Path[] {
  const lines: Map<Unit, Line> = new Map();
  for (const unit of columns.keys()) {
    let line: Line | null = null;
    let before = Infinity;
    for (const column of columns.get(unit)!) {
      const { x } = at.get(column[0])!;
      if (!line || x <= before) {
        line = { top: Infinity, bottom: 0, left: x, above: line };
      }
      for (const part of column) {
        const { y, height } = at.get(part)!;
        line.top = Math.min(line.top, y);
        line.bottom = Math.max(line.bottom, y + height);
        lines.set(part, line);
      }
      before = x;
    }
  }
  return edges.map((edge) => {
    const { from, to, outer, onward, lane } = edge;
    const [a, b] = [at.get(from)!, at.get(to)!];
    const [start, end] = [lines.get(partOf(outer, from)!)!, lines.get(partOf(outer, to)!)!];
    const [left, right] = [a.x + a.width, b.x];
    const [y, goal] = [a, b].map((box) => box.y + box.height / 2);
    const isFree = (level: number) =>
      !boxes.some((each) => {
        const box = at.get(each)!;
        return each !== from && each !== to && box.x < right && left < box.x + box.width &&
          box.y < level + 3 && level - 3 < box.y + box.height;
      });
    if (start === end && left < right && (onward || isFree(y) || isFree(goal))) {
      const turn: Points = isFree(y)
        ? [[right - GAP, y]]
        : isFree(goal)
        ? [[left + GAP, goal]]
        : [];
      return { ...edge, direct: true, points: [[left, y], ...turn, [right, goal]] };
    }
    const by = lane * LANE;
    const beside = 6 + Math.min(lane, 4);
    const belowOf = (line: Line) => line.bottom + 8 + by;
    const out = left + beside;
    // From a line above, it would cross the names of the frames that begin with the box.
    const into = (start === end ? right : at.get(entered(to, columns))!.x) - beside;
    const points: Points = [[left, y], [out, y], [out, belowOf(start)]];
    if (end !== start && end.above !== start) {
      const margin = Math.min(start.left, end.left) - beside;
      const before = end.above ? belowOf(end.above) : end.top - 8;
      points.push([margin, belowOf(start)], [margin, before], [into, before]);
    } else points.push([into, belowOf(start)]);
    return { ...edge, direct: false, points: [...points, [into, goal], [right, goal]] };
  });
}
