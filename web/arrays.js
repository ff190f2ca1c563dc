// Bytes -> numbers: as they are, or as a page packs them.

import { COLOURS, GAP, MINUS_INF, NAN, PLUS_INF } from "./levels.js";

/**
 * @typedef {{name: string, kind: string, shape: number[], scale?: number,
 *   delta?: boolean, planes?: boolean, step?: number, bytes?: number}} Coding
 * @typedef {import("./layer.js").Numbers} Numbers
 */

const KINDS = { f4: Float32Array, f8: Float64Array, u4: Uint32Array, b1: Uint8Array };

/**
 * @param {Coding} coding
 * @param {Uint8Array} bytes
 * @param {ArrayLike<number>} [ends] Of values in steps: each map's least, then each one's largest.
 * @returns {Numbers}
 */
export function decoded(coding, bytes, ends) {
  const { kind, shape, scale = 1 } = coding;
  const approximate = kind === "f2" || kind === "u1" || undefined;
  if (kind === "u1") return { shape, values: fromSteps(coding, bytes, ends ?? []), approximate };
  const size = kind === "f2" ? 2 : Number(kind[1]);
  const own = coding.planes ? joined(bytes, size) : bytes.slice(); // aligned, as typed arrays ask
  if (coding.step) for (let i = coding.step; i < own.length; i++) own[i] = /** @type {number} */ (own[i]) + /** @type {number} */ (own[i - coding.step]);
  if (kind === "f2") {
    const halves = new Uint16Array(own.buffer);
    return { shape, values: Float32Array.from(halves, (half) => scale * halfOf(half)), approximate, scale };
  }
  return { shape, values: new (/** @type {any} */ (KINDS)[kind])(own.buffer) };
}

/**
 * Bytes that were sorted by their place in the number: all first ones, all second ones.
 * @param {Uint8Array} bytes
 * @param {number} size
 */
function joined(bytes, size) {
  const count = bytes.length / size;
  const whole = new Uint8Array(bytes.length);
  for (let place = 0; place < size; place++)
    for (let i = 0; i < count; i++) whole[i * size + place] = bytes[place * count + i] ?? 0;
  return whole;
}

/**
 * Values that were rounded to steps between each map's ends: the middle of the step. Zero is
 * zero, and what is not finite is what it was.
 * @param {Coding} coding
 * @param {Uint8Array} bytes
 * @param {ArrayLike<number>} ends
 */
function fromSteps({ shape, delta }, bytes, ends) {
  const count = shape.length > 2 ? (shape[0] ?? 1) : 1; // a heatmap is one map
  const size = bytes.length / count;
  const values = new Float32Array(bytes.length);
  let level = 0;
  for (let channel = 0; channel < count; channel++) {
    const low = /** @type {number} */ (ends[channel]);
    const step = (/** @type {number} */ (ends[count + channel]) - low) / COLOURS;
    for (let i = channel * size; i < (channel + 1) * size; i++) {
      const byte = /** @type {number} */ (bytes[i]);
      level = delta ? (level + byte) & 255 : byte;
      if (level < COLOURS) values[i] = low + (level + 0.5) * step;
      else if (level !== GAP) values[i] = special(level);
    }
  }
  return values;
}

/** @param {number} level */
function special(level) {
  return level === NAN ? NaN : level === PLUS_INF ? Infinity : level === MINUS_INF ? -Infinity : 0;
}

/** @param {number} bits A number in half precision. */
function halfOf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
