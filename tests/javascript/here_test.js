// The channels' scores at a place, and how like one the others are, are Python's.

import assert from "node:assert/strict";
const { test } = Deno;
import { firstOf } from "../../web/numbers.ts";
import { Rankings, scoresOf } from "../../web/here.ts";
import { Layer } from "../../web/layer.ts";
import { descending, layerArrays } from "../../web/measures.ts";
import { array, cases } from "./cases.js";

for (const { order, maps, gradients, shape, row, column, like, scores, sorted } of cases.here)
  test(`order by ${order}`, () => {
    const tensors = { maps: { shape, values: array(maps) }, gradients: { shape, values: array(gradients) } };
    const layer = new Layer({ size: shape.slice(1) }, /** @type {any} */ (tensors), ["index"], []);
    const found = scoresOf(layer, order, { row, column }, like) ?? [];
    array(scores).forEach((/** @type {number} */ wanted, /** @type {number} */ channel) => {
      const got = Number(found[channel]);
      const near = Math.abs(got - wanted) <= 1e-12 * Math.max(1, Math.abs(wanted));
      assert.ok(Object.is(got, wanted) || near, `${got} for ${wanted} of channel ${channel}`);
      if (order === "value" || order === "contribution") assert.equal(got, wanted);
    });
    assert.deepEqual([...descending(found)], [...array(sorted)]);
  });

test("similarity is to one channel that the layer has; with a map of zeros it is not defined", () => {
  const arrays = layerArrays(Float32Array.of(1, 2, 0, 0, 2, 4), null, [3, 1, 2], ["mean"]);
  const data = new Layer(/** @type {any} */ ({ size: [1, 2] }), arrays, ["index", "mean"]);
  const rankings = new Rankings(/** @type {any} */ ({ live: false }));
  const at = /** @type {any} */ ({ order: "similarity", reference_channel: 65, channel: 0 });
  const ranking = rankings.of(data, at);
  assert.equal(ranking.words, "to channel 2");
  assert.deepEqual(rankings.reading(ranking, at), [["cosine with 2", "1"]]);
  assert.deepEqual(rankings.reading(ranking, { ...at, channel: 1 }), [["cosine with 2", "not defined"]]);
  assert.deepEqual(rankings.reading(ranking, { ...at, channel: 2 }), []);
});

test("what the score loses without each channel is kept for a layer without gradients, too", () => {
  const orders = ["index", "mean", "score drop"];
  const arrays = layerArrays(Float32Array.of(1, 2, 3, 4), null, [2, 1, 2], orders.slice(1));
  const layer = new Layer(/** @type {any} */ ({ size: [1, 2] }), arrays, orders);
  const scores = { shape: [2], values: Float64Array.of(0, 5) };
  const ablated = layer.ablated(scores, { shape: [2], values: Uint32Array.of(1, 0) });
  assert.deepEqual([...ablated.order("score drop")], [1, 0]);
  assert.equal(ablated.arrays.ablation_scores, scores);
});

test("the first of several things in words may be a number with a comma", () => {
  assert.equal(firstOf("EncoderBlock 33,472 parameters"), "EncoderBlock 33,472 parameters");
  assert.equal(firstOf("Conv2d 3×3, stride 2, 9,248 parameters"), "Conv2d 3×3");
});
