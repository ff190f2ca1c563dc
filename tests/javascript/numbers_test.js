// Names that are cut to fit.

import assert from "node:assert/strict";
const { test } = Deno;
import { ending } from "../../web/numbers.ts";

test("a layer's name is cut at its head, and keeps the number of its block", () => {
  const heads = [0, 11].map((n) => `encoder.layers.encoder_layer_${n}.self_attention.heads`);
  assert.deepEqual(heads.map((name) => ending(name, 26)), [
    "…0.self_attention.heads",
    "…11.self_attention.heads",
  ]);
  assert.equal(ending("layer3.1.conv2", 26), "layer3.1.conv2");
  assert.equal(ending("backbone.body.encoder.conv", 21), "…body.encoder.conv");
  assert.equal(ending("a_single_name_that_is_much_too_long", 20).length, 20);
});
