// A layer's histograms over the steps: fastai's "colourful dimension".

import { COLOURS } from "./levels.js";

export const ODD = [255, 0, 255, 255]; // where there are NaN or Inf

/**
 * Steps × bins, the largest values at the top, coloured by the order of magnitude of the share.
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array[]} found A histogram for each step.
 * @param {{first: number, last: number}} bins Those that are shown.
 * @param {Uint8Array} palette
 */
export function drawDimension(canvas, found, { first, last }, palette) {
  const high = last - first + 1;
  [canvas.width, canvas.height] = [found.length, high];
  const pixels = new ImageData(found.length, high);
  found.forEach((counts, x) => {
    const total = counts.reduce((a, b) => a + b, 0);
    for (let bin = first; bin <= last; bin++) {
      if (!counts[bin]) continue;
      const odd = bin === 0 || bin >= counts.length - 2;
      const level = Math.round((COLOURS - 1) * Math.max(0, 1 + Math.log10(counts[bin] / total) / 5));
      const colour = odd ? ODD : palette.subarray(4 * level, 4 * level + 4);
      pixels.data.set(colour, 4 * ((last - bin) * found.length + x));
    }
  });
  /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).putImageData(pixels, 0, 0);
}

/**
 * The bins from the first to the last that any step has something in; null if there is none.
 * @param {Float32Array[]} found
 */
export function usedBins(found) {
  const used = found.flatMap((counts) => [counts.findIndex((each) => each > 0), counts.findLastIndex((each) => each > 0)]);
  const known = used.filter((place) => place >= 0);
  return known.length ? { first: Math.min(...known), last: Math.max(...known) } : null;
}
