// The labels of a detector's boxes.

import assert from "node:assert/strict";
const { test } = Deno;
import { lowLabels } from "../../web/boxes.ts";

const box = (left, top, width = 0.3) => ({ left, top, bottom: top + 0.4, width });

test("a label that would cover a better box's stands at the bottom of its box", () => {
  assert.deepEqual(lowLabels([box(0.1, 0.1), box(0.2, 0.12)]), [false, true]);
  assert.deepEqual(lowLabels([box(0.1, 0.1), box(0.2, 0.2), box(0.5, 0.1)]), [false, false, false]);
});

test("a box without a label, and one whose ends are both taken, change nothing", () => {
  assert.deepEqual(lowLabels([box(0.1, 0.1, 0), box(0.1, 0.1)]), [false, false]);
  assert.deepEqual(lowLabels([box(0, 0), box(0, 0), box(0, 0)]), [false, true, false]);
});
