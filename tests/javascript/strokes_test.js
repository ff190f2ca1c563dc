// Strokes on the input of a page that runs its network.

import assert from "node:assert/strict";
const { test } = Deno;
import { visitDisc, withStroke } from "../../web/strokes.ts";

test("a disc covers the pixels whose middle is in it", () => {
  /** @type {number[]} */
  const covered = [];
  visitDisc(6, 4, 0.5, 0.5, 1.5 / 6, (pixel) => covered.push(pixel));
  assert.deepEqual(covered, [8, 9, 13, 14, 15, 16, 20, 21].filter((pixel) => distance(pixel) <= 1.5));
  visitDisc(6, 4, 0, 0, 1 / 6, (pixel) => covered.push(pixel));
  assert.equal(covered.at(-1), 0); // the disc's other three quarters are outside
});

/** @param {number} pixel */
function distance(pixel) {
  return Math.hypot((pixel % 6) + 0.5 - 3, Math.floor(pixel / 6) + 0.5 - 2);
}

/** Two channels of 2×2, and a picture of them that is twice as large. */
function input() {
  const values = Float32Array.of(0, 1, 2, 5, 10, 10, 10, 30);
  const pixels = Uint8ClampedArray.from({ length: 4 * 16 }, (_, i) => (i % 4 === 3 ? 255 : i));
  return { values, shape: [1, 2, 2, 2], picture: { pixels, width: 4, height: 4, words: "" } };
}

test("covered pixels get the mean of each channel, and the eraser restores them", () => {
  const given = input();
  const once = withStroke(given, Uint8Array.of(0, 0, 0, 1), false);
  assert.deepEqual([...once.values], [0, 1, 2, 2, 10, 10, 10, 15]);
  assert.deepEqual([...given.values], [...input().values]); // the first input is for undo
  const both = withStroke(once, Uint8Array.of(1, 0, 0, 0), false);
  assert.deepEqual([...both.values], [2, 1, 2, 2, 15, 10, 10, 15]); // still the mean of the first input
  const half = withStroke(both, Uint8Array.of(0, 1, 1, 1), true);
  assert.deepEqual([...half.values], [2, 1, 2, 5, 15, 10, 10, 30]);
  const none = withStroke(half, Uint8Array.of(1, 1, 1, 1), true);
  assert.deepEqual([...none.values], [...given.values]);
  assert.deepEqual([...none.picture.pixels], [...given.picture.pixels]);
});

test("the picture has the stroke where the input has it, in its own size", () => {
  const { picture } = withStroke(input(), Uint8Array.of(0, 0, 0, 1), false);
  const changed = [...picture.pixels].flatMap((value, i) => (value === input().picture.pixels[i] ? [] : [Math.floor(i / 4)]));
  assert.deepEqual([...new Set(changed)], [10, 11, 14, 15]);
  assert.deepEqual([...picture.pixels.subarray(40, 44)], [30, 31, 32, 255]);
});
