// A layer's histograms over the steps: fastai's "colourful dimension".

import { COLOURS, GAP, NAN, paint } from "./levels.ts";
import { short } from "./numbers.ts";

/** As `LogBins` of hookviz.run.statistics: −Inf, negative octaves, 0, positive octaves, Inf, NaN. */
export interface Bins {
  octaves: number;
  least: number;
  count: number;
}

/**
 * Steps × bins, the largest values at the top, coloured by the order of magnitude of the share.
 * @param found A histogram for each step.
 * @param bins Those that are shown.
 */
export function drawDimension(
  canvas: HTMLCanvasElement,
  found: Float32Array[],
  { first, last }: { first: number; last: number },
  palette: Uint32Array,
) {
  const [wide, high] = [found.length, last - first + 1];
  const levels = new Uint8Array(wide * high).fill(GAP);
  found.forEach((counts, x) => {
    const total = counts.reduce((a, b) => a + b, 0);
    for (let bin = first; bin <= last; bin++) {
      if (!counts[bin]) continue;
      const size = Math.max(0, 1 + Math.log10(counts[bin] / total) / 5);
      levels[(last - bin) * wide + x] = isOdd(bin, counts.length)
        ? NAN
        : Math.round((COLOURS - 1) * size);
    }
  });
  paint(canvas, levels, wide, high, palette);
}

/** Whether a bin is of NaN or Inf. */
export function isOdd(bin: number, count: number) {
  return bin === 0 || bin >= count - 2;
}

/** The bins from the first to the last that any step has something in; null if there is none. */
export function usedBins(found: Float32Array[]) {
  const used = found.flatMap((
    counts,
  ) => [counts.findIndex((each) => each > 0), counts.findLastIndex((each) => each > 0)]);
  const known = used.filter((place) => place >= 0);
  return known.length ? { first: Math.min(...known), last: Math.max(...known) } : null;
}

/** The values of all bins that any step has something in; null if there is none. */
export function binsInWords(found: Float32Array[], bins: Bins) {
  const { octaves, count } = bins;
  const used = Array.from({ length: count }, (_, place) => place)
    .filter((place) => found.some((counts) => counts[place] > 0));
  const finite = used.filter((place) => !isOdd(place, count));
  const names: Record<number, string> = { 0: "−Inf", [count - 2]: "Inf", [count - 1]: "NaN" };
  const odd = used.flatMap((place) => names[place] ?? []).join(" and ");
  if (!finite.length) return odd ? `only ${odd}` : null;
  const [first, last] = [finite[0] - octaves - 1, finite[finite.length - 1] - octaves - 1];
  const ends = [
    endName(first, first > 0 ? first - 1 : first, bins),
    endName(last, last < 0 ? last + 1 : last, bins),
  ];
  return [...new Set(ends)].join(" to ") + (odd && `, and ${odd} in magenta`);
}

/**
 * @param bin The number of octaves from zero, negative on that side.
 * @param edge The same of the bin's edge.
 */
function endName(bin: number, edge: number, { octaves, least }: Bins) {
  const name = (edge: number) => short(edge && Math.sign(edge) * 2 ** (least + Math.abs(edge)));
  // The bins that are furthest from zero have no outer edge.
  if (bin === -octaves) return `below ${name(bin + 1)}`;
  return bin === octaves ? `above ${name(bin - 1)}` : name(edge);
}
