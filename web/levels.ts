// Values -> palette levels -> pixels, to the bit as hookviz.draw.colours does it.

export const COLOURS = 252;
export const MINUS_INF = 252;
export const PLUS_INF = 253;
export const NAN = 254;
export const GAP = 255;

/**
 * What is single and what is double precision in numpy's arithmetic: with ends in single
 * precision all is; percentiles are doubles; a heatmap's ends are Python's numbers.
 */
type Precision = "single" | "double" | "mixed";
export interface Range {
  low: number;
  high: number;
  precision: Precision;
}

/** Values as levels: low and below 0, high and above 251. */
export function toLevels(
  values: ArrayLike<number>,
  range: Range,
  start: number = 0,
  count: number = values.length,
): Uint8Array {
  let { low, high, precision } = range;
  const span = high - low;
  if (span < 1e-30 || span > 1e30) precision = "double"; // single would over- or underflow
  const round = precision === "single" ? Math.fround : asItIs;
  const less = precision === "double" ? asItIs : Math.fround;
  low = less(low);
  const scale = round(COLOURS / (precision === "single" ? Math.fround(high - low) : span));
  const levels = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    const value = values[start + i];
    const scaled = round(less(value - low) * scale);
    if (scaled > 0 && value !== Infinity) levels[i] = scaled < COLOURS ? scaled : COLOURS - 1;
    else if (Number.isNaN(value)) levels[i] = NAN;
    else if (value === Infinity) levels[i] = PLUS_INF;
    else if (value === -Infinity) levels[i] = MINUS_INF;
  }
  return levels;
}

function asItIs(value: number) {
  return value;
}

/**
 * What value gets the first and what the last colour, for every map of a layer.
 * @param least Of each map; NaN where none is finite.
 * @param normalize "channel", "layer", "symmetric", or "percentile": then `least` and `most` are the percentiles.
 * @param diverging Zero must be in the middle.
 */
export function colourRanges(
  least: ArrayLike<number>,
  most: ArrayLike<number>,
  normalize: string,
  diverging: boolean,
  precision: Precision,
): Range[] {
  const known = (ends: ArrayLike<number>) =>
    Array.from(ends, (end) => (Number.isNaN(end) ? 0 : end));
  const [low, high] = [known(least), known(most)];
  if (normalize === "layer") {
    low.fill(finiteEnds(least)[0]);
    high.fill(finiteEnds(most)[1]);
  }
  const plusOne = (end: number) => precision === "single" ? Math.fround(end + 1) : end + 1;
  return low.map((first, i) => {
    const last = high[i];
    if (diverging || normalize === "symmetric") {
      const size = Math.max(Math.abs(first), Math.abs(last)) || 1;
      return { low: -size, high: size, precision };
    }
    return { low: first, high: first < last ? last : plusOne(first), precision };
  });
}

/** The least and the largest finite value; 0 and 0 if there is none. */
function finiteEnds(values: ArrayLike<number>) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low > high ? [0, 0] : [low, high];
}

/**
 * The range of a heatmap: 0 to its maximum, or symmetric about zero; null if all is zero, or
 * nothing finite.
 */
export function heatRange(heat: ArrayLike<number>): (Range & { diverging: boolean }) | null {
  const [least, largest] = finiteEnds(heat);
  const most = Math.max(-least, largest);
  if (most === 0) return null;
  return { low: least < 0 ? -most : 0, high: most, precision: "mixed", diverging: least < 0 };
}

/**
 * The range of values: from the least finite one to the largest, or symmetric about zero.
 * @param signed Left out: symmetric if any value is below zero.
 */
export function rangeOf(
  values: ArrayLike<number>,
  signed?: boolean,
  precision: Precision = "mixed",
): Range {
  const [low, high] = finiteEnds(values);
  if (signed ?? low < 0) {
    const most = Math.max(-low, high) || 1;
    return { low: -most, high: most, precision };
  }
  return { low, high: high > low ? high : low + 1, precision };
}

/**
 * A palette: the RGBA colours of all levels, as a picture's pixels have them.
 * @param text base64
 */
export function paletteOf(text: string): Uint32Array {
  return new Uint32Array(fromBase64(text).buffer);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const { fromBase64: own } = Uint8Array as unknown as {
    fromBase64?: (text: string) => Uint8Array<ArrayBuffer>;
  };
  if (own) return own.call(Uint8Array, text); // newer browsers: a page's runtime is millions of characters
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Draw levels on a canvas, one pixel each. */
export function paint(
  canvas: HTMLCanvasElement,
  levels: Uint8Array,
  width: number,
  height: number,
  palette: Uint32Array,
) {
  const pixels = new Uint32Array(width * height);
  for (let i = 0; i < pixels.length; i++) pixels[i] = palette[levels[i]] ?? 0;
  put(canvas, new Uint8ClampedArray(pixels.buffer), width, height);
}

/** Where a canvas is drawn on. */
export function contextOf(canvas: HTMLCanvasElement) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser gives no more canvases.");
  return context;
}

/** Put RGBA pixels on a canvas of their size. */
export function put(
  canvas: HTMLCanvasElement,
  pixels: Uint8ClampedArray<ArrayBuffer>,
  width: number,
  height: number,
) {
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  if (context) context.putImageData(new ImageData(pixels, width, height), 0, 0);
}
