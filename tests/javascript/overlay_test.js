// A heatmap over the picture is Python's, but for the last bit of a byte.

import assert from "node:assert/strict";
const { test } = Deno;
import { fieldPart, fieldWords } from "../../web/field.ts";
import { heatRange } from "../../web/levels.ts";
import { short, shortest } from "../../web/numbers.ts";
import { blended, upsampled } from "../../web/overlay.ts";
import { array, cases } from "./cases.js";

for (const { name, heat, shape, picture, size, palette, alpha, mixed } of cases.overlays)
  test(`overlay: ${name}`, () => {
    const values = upsampled(array(heat), shape[0], shape[1], size[0], size[1]);
    const rgba = new Uint8ClampedArray(array(picture));
    const found = blended(rgba, values, heatRange(array(heat)), new Uint32Array(array(palette).buffer), alpha);
    array(mixed).forEach((/** @type {number} */ byte, /** @type {number} */ i) => {
      assert.ok(Math.abs((found[i] ?? -9) - byte) <= 1, `${found[i]} for ${byte} at ${i}`);
    });
  });

test("numbers are the shortest that are this very number", () => {
  for (const { value, text } of cases.numbers) assert.equal(shortest(value), text);
  assert.deepEqual([0, -2.5, 1e-9, Infinity, NaN].map(short), ["0", "−2.5", "1.00e−9", "∞", "NaN"]);
});

test("a receptive field is outlined in shares of the picture", () => {
  const ends = [{ along: 0, from: [0, 2], to: [4, 6] }, { along: 1, from: [0, 4], to: [4, 8] }];
  const field = { status: "exact", why: "", input: [8, 8], map: [2, 2], axes: ["rows", "columns"], size: [4, 4], ends };
  assert.deepEqual(fieldPart(field, [0, 1, 1]), { u: 0.75, v: 0.5, wide: 0.5, high: 0.5 });
  assert.equal(fieldWords(field, [0, 1, 0]), "4×4 pixels, rows 2–5, columns 0–3");
  const one = { ...field, size: [1, 4], ends: [{ along: 0, from: [0, 5], to: [4, 6] }, ends[1]] };
  assert.equal(fieldWords(one, [0, 1, 0]), "1×4 pixels, row 5, columns 0–3");
});
