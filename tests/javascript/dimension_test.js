// The words beside a training's histograms.

import assert from "node:assert/strict";
const { test } = Deno;
import { binsInWords } from "../../web/dimension.ts";

// −Inf, −4 to −2, to −1, to −0.5, 0, 0.5 to 1, to 2, to 4, Inf, NaN; those around 0 and at the ends are open.
const bins = { octaves: 3, least: -1, count: 10 };
const filled = (/** @type {number[]} */ ...places) => Float32Array.from({ length: 10 }, (_, place) => Number(places.includes(place)));

test("the range of a histogram is that of its bins, open at the ends", () => {
  const rows = /** @type {Array<[number[], string | null]>} */ ([
    [[1, 7], "below −2 to above 2"],
    [[2, 6], "−2 to 2"],
    [[6], "1 to 2"],
    [[7], "above 2"],
    [[2], "−2 to −1"],
    [[4], "0"],
    [[3, 4], "−1 to 0"],
    [[5], "0 to 1"],
    [[2, 6, 8, 9], "−2 to 2, and Inf and NaN in magenta"],
    [[9], "only NaN"],
    [[0, 9], "only −Inf and NaN"],
    [[], null],
  ]);
  for (const [places, words] of rows) assert.equal(binsInWords([filled(...places)], bins), words);
  assert.equal(binsInWords([filled(3), filled(), filled(6)], bins), "−1 to 2");
});
