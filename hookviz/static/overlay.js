// A heatmap over the input: opacity follows the value, what does not matter loses its colour.

import { toLevels } from "./levels.js";

/**
 * A heatmap at the picture's size, bilinear between the pixels' centres.
 * @param {ArrayLike<number>} heat
 * @param {number} tall
 * @param {number} wide
 * @param {number} height
 * @param {number} width
 */
export function upsampled(heat, tall, wide, height, width) {
  const rows = steps(tall, height);
  const columns = steps(wide, width);
  const values = new Float32Array(height * width);
  for (let y = 0; y < height; y++) {
    const { first, second, share } = rows[y];
    for (let x = 0; x < width; x++) {
      const at = columns[x];
      const mix = (/** @type {number} */ row) =>
        heat[row * wide + at.first] * (1 - at.share) + heat[row * wide + at.second] * at.share;
      values[y * width + x] = mix(first) * (1 - share) + mix(second) * share;
    }
  }
  return values;
}

/**
 * For each pixel of a side the two cells that it lies between.
 * @param {number} cells
 * @param {number} pixels
 */
function steps(cells, pixels) {
  return Array.from({ length: pixels }, (_, i) => {
    const place = Math.max(((i + 0.5) * cells) / pixels - 0.5, 0);
    const first = Math.min(Math.floor(place), cells - 1);
    return { first, second: Math.min(first + 1, cells - 1), share: place - first };
  });
}

/**
 * @param {Uint8ClampedArray} picture RGBA
 * @param {Float32Array} heat At the picture's size.
 * @param {import("./levels.js").Range | null} range
 * @param {Uint32Array} palette
 * @param {number} alpha
 * @returns {Uint8ClampedArray<ArrayBuffer>}
 */
export function blended(picture, heat, range, palette, alpha) {
  const mixed = new Uint8ClampedArray(picture);
  if (!range) return mixed;
  const levels = toLevels(heat, range);
  const colours = new Uint8Array(palette.buffer);
  const most = Math.max(Math.abs(range.low), Math.abs(range.high));
  const strength = 1 - (1 - alpha) ** 2;
  for (let i = 0; i < heat.length; i++) {
    const weight = Number.isFinite(heat[i]) ? Math.min(Math.abs(heat[i]) / most, 1) : 1;
    const p = 4 * i;
    const grey = 0.299 * picture[p] + 0.587 * picture[p + 1] + 0.114 * picture[p + 2];
    for (let c = 0; c < 3; c++) {
      const ground = picture[p + c] + alpha * (1 - weight) * (grey - picture[p + c]);
      const colour = colours[4 * levels[i] + c];
      mixed[p + c] = Math.round(ground + strength * weight * (colour - ground));
    }
  }
  return mixed;
}
