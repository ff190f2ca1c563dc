// A heatmap over the input: opacity follows the value, what does not matter loses its colour.

import { paint, put, toLevels } from "./levels.ts";
import type { Range } from "./levels.ts";
import type { Picture } from "./source.ts";

/** The two that a pixel lies between. */
interface Cells {
  first: number;
  second: number;
  share: number;
}

/** A heatmap at the picture's size, bilinear between the pixels' centres. */
export function upsampled(
  heat: ArrayLike<number>,
  tall: number,
  wide: number,
  height: number,
  width: number,
) {
  const rows = steps(tall, height);
  const columns = steps(wide, width);
  const values = new Float32Array(height * width);
  for (let y = 0; y < height; y++) {
    const { first, second, share } = rows[y];
    const [above, below] = [first * wide, second * wide];
    for (let x = 0; x < width; x++) {
      const at = columns[x];
      const [left, right] = [at.first, at.second];
      const upper = heat[above + left] * (1 - at.share) + heat[above + right] * at.share;
      const lower = heat[below + left] * (1 - at.share) + heat[below + right] * at.share;
      values[y * width + x] = upper * (1 - share) + lower * share;
    }
  }
  return values;
}

/** For each pixel of a side the two cells that it lies between. */
function steps(cells: number, pixels: number): Cells[] {
  return Array.from({ length: pixels }, (_, i) => {
    const place = Math.max(((i + 0.5) * cells) / pixels - 0.5, 0);
    const first = Math.min(Math.floor(place), cells - 1);
    return { first, second: Math.min(first + 1, cells - 1), share: place - first };
  });
}

const GAMMA = 2.2;
const LIGHT = Float64Array.from({ length: 256 }, (_, byte) => (byte / 255) ** GAMMA);

// The way back, by the root of the light: a power for every pixel would take most of the time.
const STEPS = 4095;
const BYTES = Float64Array.from(
  { length: STEPS + 1 },
  (_, step) => 255 * (step / STEPS) ** (2 / GAMMA),
);

/**
 * As `blend` of hookviz/draw/overlay.py: colours go, in linear light, and the luminance stays.
 * @param picture RGBA
 * @param heat At the picture's size.
 */
export function blended(
  picture: Uint8ClampedArray,
  heat: Float32Array,
  range: Range | null,
  palette: Uint32Array,
  alpha: number,
): Uint8ClampedArray<ArrayBuffer> {
  const mixed = new Uint8ClampedArray(picture);
  if (!range) return mixed;
  const levels = toLevels(heat, range);
  const colours = new Uint8Array(palette.buffer);
  // The least is transparent, so that a heatmap without zeros does not hide the picture.
  let least = range.high;
  for (let i = 0; i < heat.length; i++) {
    if (Number.isFinite(heat[i])) least = Math.min(least, Math.abs(heat[i]));
  }
  const span = range.high - least;
  const flat = span <= 1e-6 * range.high;
  for (let i = 0; i < heat.length; i++) {
    const value = heat[i];
    const scaled = flat ? 0 : Math.min((Math.abs(value) - least) / span, 1);
    const share = Number.isFinite(value) ? scaled : 1;
    const p = 4 * i;
    const grey = 0.2126 * LIGHT[picture[p]] + 0.7152 * LIGHT[picture[p + 1]] +
      0.0722 * LIGHT[picture[p + 2]];
    for (let c = 0; c < 3; c++) {
      const light = LIGHT[picture[p + c]];
      // Math.round would take most of the time.
      const ground = BYTES[Math.floor(STEPS * Math.sqrt(light + alpha * (grey - light)) + 0.5)];
      const colour = colours[4 * levels[i] + c];
      mixed[p + c] = ground + alpha * share * (colour - ground);
    }
  }
  return mixed;
}

interface Heatmap {
  values: ArrayLike<number>;
  shape: number[];
}
/** The last one at its picture's size, which is kept while only the opacity moves. */
let last: { heat: Heatmap; picture: Picture; large: Float32Array } | null = null;

export const NO_RANGE: Range = { low: 0, high: 1, precision: "mixed" };

/**
 * Paint a heatmap over a picture; alone where there is none.
 * @param range Null where it is zero everywhere.
 */
export function paintHeat(
  canvas: HTMLCanvasElement,
  heat: Heatmap,
  range: Range | null,
  palette: Uint32Array,
  picture: Picture | null,
  alpha: number,
) {
  const { values, shape: [tall, wide] } = heat;
  if (!picture) return paint(canvas, toLevels(values, range ?? NO_RANGE), wide, tall, palette);
  const { pixels, width, height } = picture;
  if (last?.heat !== heat || last.picture !== picture) {
    last = { heat, picture, large: upsampled(values, tall, wide, height, width) };
  }
  return put(canvas, blended(pixels, last.large, range, palette, alpha), width, height);
}
