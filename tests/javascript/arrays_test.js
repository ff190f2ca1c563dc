// A page's packed bytes become the numbers that Python says they are.

import assert from "node:assert/strict";
const { test } = Deno;
import { decoded } from "../../web/arrays.ts";
import { Layer } from "../../web/layer.ts";
import { array, cases } from "./cases.js";

for (const { name, coding, bytes, ends, values } of cases.packed)
  test(`decoded: ${name}`, () => {
    const found = decoded(coding, array(bytes), ends && array(ends));
    const wanted = array(values);
    assert.deepEqual(found.shape, coding.shape);
    assert.equal(found.values.length, wanted.length);
    wanted.forEach((/** @type {number} */ value, /** @type {number} */ i) => {
      const close = Math.abs(found.values[i] - value) <= 1e-6 * Math.abs(value);
      assert.ok(Object.is(found.values[i], value) || close, `${found.values[i]} for ${value}`);
    });
  });

test("a layer's orders, rows and small maps", () => {
  const numbers = { shape: [7, 2], values: Float32Array.from({ length: 14 }, (_, i) => i) };
  const maps = { shape: [2, 2, 3], values: Float32Array.from([1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 9]) };
  const orders = { shape: [1, 2], values: Uint32Array.from([1, 0]) };
  const made = /** @type {any} */ ({ maps, numbers, orders });
  const layer = new Layer({ size: [2, 3] }, made, ["index", "mean"], []);
  assert.deepEqual(Array.from(layer.order("mean")), [1, 0]);
  assert.deepEqual(Array.from(layer.order("index")), [0, 1]);
  assert.deepEqual(Array.from(layer.row("numbers", "max")), [2, 3]);
  assert.deepEqual(layer.small(2, 0), { values: Float32Array.from([3, 4.5]), height: 1, width: 2 });
  assert.deepEqual(layer.small(1, 1).values, maps.values.subarray(6));
});

test("the strongest channel is never silent, not even where all others lower the score", () => {
  const numbers = { shape: [7, 2], values: Float32Array.from({ length: 14 }, (_, i) => ([0, 2].includes(i) ? 0 : 1)) };
  const maps = { shape: [2, 1, 2], values: Float32Array.from([0, 0, 2, 1]) };
  const gradients = { shape: [2, 1, 2], values: Float32Array.from([-1, -1, -1, -1]) };
  const made = /** @type {any} */ ({ maps, gradients, numbers });
  assert.equal(new Layer({ size: [1, 2] }, made, ["index"], []).strongest, 1);
});
