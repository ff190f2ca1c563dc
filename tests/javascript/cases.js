// What Python wrote for these tests: numbers, and what they must become.

export const cases = JSON.parse(Deno.readTextFileSync(Deno.env.get("HOOKVIZ_CASES") ?? ""));

const KINDS = { float32: Float32Array, float64: Float64Array, uint32: Uint32Array, uint8: Uint8Array };

/** Return an array that Python wrote. */
export function array({ dtype, base64 }) {
  return new KINDS[dtype](Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)).buffer);
}
