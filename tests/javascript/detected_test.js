// Boxes of a detector are Python's: corners, names, scores, and the expressions by which they are targets.

import assert from "node:assert/strict";
const { test } = Deno;
import { detected } from "../../web/detected.ts";
import { array, cases } from "./cases.js";

/** @param {any} one @param {any} other */
function near(one, other) {
  if (typeof one === "number") return assert.ok(Math.abs(one - other) <= 1e-6, `${one} for ${other}`);
  if (typeof one !== "object") return assert.equal(one, other);
  assert.deepEqual(Object.keys(one).sort(), Object.keys(other).sort());
  for (const key of Object.keys(one)) near(one[key], other[key]);
  return undefined;
}

for (const { name, facts, tensors, boxes, count } of cases.detectors)
  test(`detector: ${name}`, () => {
    const given = tensors.map((/** @type {any} */ each) => ({ shape: each.shape, values: array(each.values) }));
    near(detected(facts, given), { boxes, count });
  });
