// A picture becomes what Pillow and torchvision make of it, byte by byte; heatmaps are Python's.

import assert from "node:assert/strict";
const { test } = Deno;
import { CAMS } from "../../web/cams.ts";
import { numbersOf, prepared } from "../../web/resize.ts";
import { array, cases } from "./cases.js";

for (const { name, picture, size, steps, pixels, made } of cases.transforms)
  test(`transform: ${name}`, () => {
    const given = { pixels: array(picture), height: size[0], width: size[1] };
    const found = prepared(given, steps.steps);
    assert.deepEqual([found.height, found.width], made);
    assert.deepEqual(found.pixels, array(pixels));
  });

test("numbers: 0 to 1, less the mean, divided by the deviation", () => {
  const { picture, channels, mean, std, values } = cases.normalized;
  const found = numbersOf({ pixels: array(picture), height: 2, width: 3 }, channels, mean, std);
  array(values).forEach((/** @type {number} */ value, /** @type {number} */ i) => {
    assert.ok(Math.abs((found[i] ?? NaN) - value) < 1e-6);
  });
});

for (const { name, maps, gradients, count, size, heat } of cases.cams)
  test(`heatmap: ${name}`, () => {
    const found = CAMS[name]?.({ maps: array(maps), gradients: array(gradients), count, size });
    const wanted = array(heat);
    const most = Math.max(...wanted.map(Math.abs));
    wanted.forEach((/** @type {number} */ value, /** @type {number} */ i) => {
      assert.ok(Math.abs((found?.[i] ?? NaN) - value) <= 2e-5 * most, `${found?.[i]} for ${value}`);
    });
  });
