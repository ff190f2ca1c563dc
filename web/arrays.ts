// Bytes -> numbers: as they are, or as a page packs them.

import { COLOURS, GAP, MINUS_INF, NAN, PLUS_INF } from "./levels.ts";
import type { Coding } from "./messages.d.ts";
import type { Numbers } from "./layer.ts";

const KINDS = { f4: Float32Array, f8: Float64Array, u4: Uint32Array, b1: Uint8Array };

/** @param ends Of values in steps: each map's least, then each one's largest. */
export function decoded(coding: Coding, bytes: Uint8Array, ends?: ArrayLike<number>): Numbers {
  const { kind, shape } = coding;
  const scale = coding.scale ?? 1;
  const approximate = kind === "f2" || kind === "u1" || undefined;
  if (kind === "u1") return { shape, values: fromSteps(coding, bytes, ends ?? []), approximate };
  const size = kind === "f2" ? 2 : Number(kind[1]);
  const own = coding.planes ? joined(bytes, size) : bytes.slice(); // aligned, as typed arrays ask
  if (coding.step) {
    for (let i = coding.step; i < own.length; i++) own[i] = own[i] + own[i - coding.step];
  }
  if (kind === "f2") {
    const halves = new Uint16Array(own.buffer);
    return {
      shape,
      values: Float32Array.from(halves, (half) => scale * halfOf(half)),
      approximate,
      scale,
    };
  }
  return { shape, values: new (KINDS[kind as keyof typeof KINDS])(own.buffer) };
}

/** Bytes that were sorted by their place in the number: all first ones, all second ones. */
function joined(bytes: Uint8Array, size: number) {
  const count = bytes.length / size;
  const whole = new Uint8Array(bytes.length);
  for (let place = 0; place < size; place++) {
    for (let i = 0; i < count; i++) whole[i * size + place] = bytes[place * count + i] ?? 0;
  }
  return whole;
}

/**
 * Values that were rounded to steps between each map's ends: the middle of the step. Zero is
 * zero, and what is not finite is what it was.
 */
function fromSteps({ shape, delta }: Coding, bytes: Uint8Array, ends: ArrayLike<number>) {
  const count = shape.length > 2 ? (shape[0] ?? 1) : 1; // a heatmap is one map
  const size = bytes.length / count;
  const values = new Float32Array(bytes.length);
  let level = 0;
  for (let channel = 0; channel < count; channel++) {
    const low = ends[channel];
    const step = (ends[count + channel] - low) / COLOURS;
    for (let i = channel * size; i < (channel + 1) * size; i++) {
      const byte = bytes[i];
      level = delta ? (level + byte) & 255 : byte;
      if (level < COLOURS) values[i] = low + (level + 0.5) * step;
      else if (level !== GAP) values[i] = special(level);
    }
  }
  return values;
}

function special(level: number) {
  return level === NAN ? NaN : level === PLUS_INF ? Infinity : level === MINUS_INF ? -Infinity : 0;
}

/** @param bits A number in half precision. */
function halfOf(bits: number) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
