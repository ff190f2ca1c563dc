// Levels and ranges are Python's, to the bit.

import assert from "node:assert/strict";
const { test } = Deno;
import { colourRanges, heatRange, toLevels } from "../../web/levels.ts";
import { array, cases } from "./cases.js";

for (const { name, values, low, high, precision, levels } of cases.levels)
  test(`levels: ${name}`, () => {
    assert.deepEqual(toLevels(array(values), { low, high, precision }), array(levels));
  });

for (const { normalize, diverging, precision, least, most, low, high } of cases.ranges)
  test(`ranges: ${normalize}, ${diverging ? "diverging" : "sequential"}, ${precision}`, () => {
    const found = colourRanges(array(least), array(most), normalize, diverging, precision);
    assert.deepEqual(found.map((each) => each.low), Array.from(array(low)));
    assert.deepEqual(found.map((each) => each.high), Array.from(array(high)));
  });

for (const { name, heat, range } of cases.heats)
  test(`heatmap's range: ${name}`, () => {
    const found = heatRange(array(heat));
    assert.deepEqual(found && [found.low, found.high, found.diverging], range);
  });
