// Boxes of a detector from what its network returned, as `hookviz.view.answer` finds them.

import type { Tensor } from "./runner.js";
import type { Box } from "./output.js";

export interface Detector {
  kind: "queries" | "anchors" | "rows";
  tensors: string[];
  written: string;
  sample: number;
  labels: string[];
  every: boolean;
  points: number;
  size: [number, number];
  shown: number;
  overlap: number;
}
export interface Found {
  label: number;
  score: number;
  corners: [number, number, number, number];
  at: number[];
  points: Array<[number, number]>;
  pointsAt: number[][];
}

/** The best boxes, the best first, and how many there are. */
export function detected(detector: Detector, tensors: Tensor[]): { boxes: Box[]; count: number } {
  const { kind, written, sample, labels, shown } = detector;
  const found = { queries: ofQueries, anchors: ofAnchors, rows: ofRows }[kind](detector, tensors);
  found.sort((a, b) => b.score - a.score);
  const said = (at: number[]) => `${written}[${[sample, ...at].join(", ")}]`;
  const boxes = found.slice(0, shown).map(({ label, score, corners, at, points, pointsAt }) => ({
    corners,
    label: labels[label] ?? `class ${label}`,
    score,
    target: said(at),
    points,
    pointTargets: pointsAt.map(said),
  }));
  return { boxes, count: found.length };
}

/** DETR and its kin: the shares of classes of each query, and its box in shares of the picture. */
function ofQueries({ every }: Detector, [logits, boxes]: Tensor[]): Found[] {
  const [, queries = 0, classes = 0] = logits?.shape ?? [];
  return Array.from({ length: queries }, (_, place) => {
    const row = [...(logits?.values.subarray(place * classes, (place + 1) * classes) ?? [])];
    const most = Math.max(...row);
    const sum = row.reduce((total, value) => total + Math.exp(value - most), 0);
    // The last class of a softmax is "no object".
    const shares = every
      ? row.map((value) => 1 / (1 + Math.exp(-value)))
      : row.slice(0, -1).map((value) => Math.exp(value - most) / sum);
    const label = shares.indexOf(Math.max(...shares));
    const [right = 0, down = 0, wide = 0, high = 0] =
      boxes?.values.subarray(4 * place, 4 * place + 4) ?? [];
    return {
      label,
      score: shares[label] ?? NaN,
      corners: cornersAround(right, down, wide, high),
      at: [place, label],
      points: [],
      pointsAt: [],
    };
  });
}

/** YOLO as ultralytics returns it: rows of boxes in pixels, then of classes, a column an anchor. */
function ofAnchors(
  { labels, points, size: [height, width], shown, overlap }: Detector,
  [all]: Tensor[],
): Found[] {
  const anchors = all?.shape[2] ?? 0;
  const at = (row: number, place: number) => all?.values[row * anchors + place] ?? NaN;
  const every = Array.from({ length: anchors }, (_, place) => {
    let label = 0;
    for (let n = 1; n < labels.length; n++) if (at(4 + n, place) > at(4 + label, place)) label = n;
    return {
      place,
      label,
      score: at(4 + label, place),
      box: cornersAround(at(0, place), at(1, place), at(2, place), at(3, place)),
    };
  });
  every.sort((a, b) => b.score - a.score);
  const kept: typeof every = [];
  for (const each of every.slice(0, 50 * shown)) {
    if (kept.length === shown) break;
    if (
      !kept.some((better) => better.label === each.label && shared(better.box, each.box) > overlap)
    ) kept.push(each);
  }
  const first = 4 + labels.length;
  return kept.map(({ place, label, score, box }) => ({
    label,
    score,
    corners: inShares(box, width, height),
    at: [4 + label, place],
    points: Array.from(
      { length: points },
      (_, n) => [at(first + 3 * n, place) / width, at(first + 3 * n + 1, place) / height],
    ),
    pointsAt: Array.from({ length: points }, (_, n) => [first + 3 * n + 2, place]),
  }));
}

/** YOLO that leaves none to be left out: corners, score, class, keypoints in a row. */
function ofRows({ points, size: [height, width] }: Detector, [all]: Tensor[]): Found[] {
  const [, rows = 0, columns = 0] = all?.shape ?? [];
  return Array.from({ length: rows }, (_, place) => {
    const [left = 0, top = 0, right = 0, bottom = 0, score = NaN, label = 0, ...more] =
      all?.values.subarray(place * columns, (place + 1) * columns) ?? [];
    return {
      label,
      score,
      corners: inShares([left, top, right, bottom], width, height),
      at: [place, 4],
      points: Array.from(
        { length: points },
        (_, n) => [(more[3 * n] ?? NaN) / width, (more[3 * n + 1] ?? NaN) / height],
      ),
      pointsAt: Array.from({ length: points }, (_, n) => [place, 8 + 3 * n]),
    };
  });
}

/** The corners of a box around a point. */
function cornersAround(
  right: number,
  down: number,
  wide: number,
  high: number,
): [number, number, number, number] {
  return [right - wide / 2, down - high / 2, right + wide / 2, down + high / 2];
}

function inShares(
  [left, top, right, bottom]: [number, number, number, number],
  width: number,
  height: number,
): [number, number, number, number] {
  return [left / width, top / height, right / width, bottom / height];
}

/** The intersection of two boxes over their union. */
function shared(
  [left = 0, top = 0, right = 0, bottom = 0]: number[],
  [a = 0, b = 0, c = 0, d = 0]: number[],
) {
  const common = Math.max(Math.min(right, c) - Math.max(left, a), 0) *
    Math.max(Math.min(bottom, d) - Math.max(top, b), 0);
  return common / ((right - left) * (bottom - top) + (c - a) * (d - b) - common);
}
