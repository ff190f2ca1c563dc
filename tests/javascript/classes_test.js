// Predictions of a page that runs its network.

import assert from "node:assert/strict";
const { test } = Deno;
import { rankedClasses } from "../../web/classes.ts";

const CLASSES = { count: 3, names: ["cat", "dog"], word: "class" };

test("classes have probabilities, and changes in percentage points", () => {
  const scores = Float32Array.from([0, Math.log(3), -Infinity]);
  const found = rankedClasses(scores, CLASSES, Float32Array.from([0, 0, -Infinity]));
  assert.deepEqual(found.map((each) => [each.name, each.words, each.change]), [
    ["dog", "75.0 %", "+25.0 pp"],
    ["cat", "25.0 %", "−25.0 pp"],
    ["class 2", "0.0 %", "0.0 pp"],
  ]);
});

test("outputs that are no classes have scores", () => {
  const outputs = { count: 2, names: [], word: "output" };
  const [first] = rankedClasses(Float32Array.from([0.5, 2]), outputs, Float32Array.from([0.5, 2.25]));
  assert.deepEqual([first.name, first.words, first.change], ["output 1", "score 2", "−0.25"]);
  const words = [2, 0.5].map((score) =>
    rankedClasses(Float32Array.from([score]), { ...CLASSES, count: 1 }, null)[0].words
  );
  assert.deepEqual(words, ["score 2, sigmoid 88.1 %", "score 0.5"]);
});

test("a change that rounds to zero has no sign", () => {
  const [first] = rankedClasses(Float32Array.from([1, 0]), CLASSES, Float32Array.from([1.0001, 0]));
  assert.equal(first.change, "0.0 pp");
});
