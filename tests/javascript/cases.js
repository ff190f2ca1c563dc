// What Python wrote for these tests: numbers, and what they must become.

import { readFileSync } from "node:fs";
import { env } from "node:process";

/** @type {any} */
export const cases = JSON.parse(readFileSync(env.HOOKVIZ_CASES ?? "", "utf-8"));

const KINDS = { float32: Float32Array, float64: Float64Array, uint32: Uint32Array, uint8: Uint8Array };

/**
 * An array that Python wrote.
 * @param {{dtype: keyof typeof KINDS, base64: string}} written
 * @returns {any}
 */
export function array({ dtype, base64 }) {
  const bytes = Uint8Array.from(Buffer.from(base64, "base64"));
  return new KINDS[dtype](bytes.buffer);
}
