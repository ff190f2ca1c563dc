// Targets that are typed in a page that runs its network.

import assert from "node:assert/strict";
const { test } = Deno;
import { readTarget } from "../../web/targets.ts";

const FACTS = {
  net: { inputs: { classes: [1, 3] }, answers: [] },
  classes: { count: 3, names: ["crane (0)", "moon", "crane (2)"], word: "class" },
};

test("a class is known by its number, or by a name that no other class has", () => {
  const found = ["2", "Moon", "crane (2)", "moon - 0"].map((text) => readTarget(text, FACTS));
  assert.deepEqual(found.map(({ written }) => written), ["2", "1", "2", "1 - 0"]);
  assert.equal(found[3].name, "moon - crane (0)");
});

test("a name of several classes is refused with their numbers", () => {
  const words = "2 classes are called crane, 0, 2: give the number of one.";
  assert.throws(() => readTarget("Crane", FACTS), { message: words });
});

test("what is not a target is refused with the ways to write one", () => {
  const ways = "write a class by name or by number, 0 to 2";
  assert.throws(() => readTarget("nose", FACTS), {
    message: `nose is not a target of this page: ${ways}.`,
  });
  const inputs = { classes: [1, 3], "weights:0": [1, 2, 4, 4] };
  const both = { ...FACTS, net: { inputs, answers: ["output[1]"] } };
  const other = "index output[1], and end in .sum() or .mean() if it is not one number";
  assert.throws(() => readTarget("99", both), {
    message: `99 is not a target of this page: ${ways}; or ${other}.`,
  });
});
