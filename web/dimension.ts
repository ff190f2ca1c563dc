// A layer's histograms over the steps: fastai's "colourful dimension".

import { COLOURS, GAP, NAN, paint } from "./levels.ts";

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
