// State says what changed, once, and a zoom stays inside the pictures.

import assert from "node:assert/strict";
const { test } = Deno;
import { layout } from "../../web/tiles.ts";
import { State } from "../../web/state.ts";
import { cases } from "./cases.js";

const fresh = () => new State(/** @type {any} */ ({ layer: "a", channel: 0, place: null }));

test("the settings are Python's, the rest is the browser's", () => {
  const state = new State(cases.settings);
  state.set({ channel: 3, hover: [0.5, 0.5], zoom: { k: 2, x: 0, y: 0 } });
  assert.deepEqual(state.settings, { ...cases.settings, channel: 3 });
});

test("listeners are told what changed, and only then", () => {
  const state = fresh();
  /** @type {string[][]} */
  const told = [];
  state.onChange((changed) => told.push([...changed]));
  state.set({ channel: 0 });
  state.set({ channel: 3, layer: "a" });
  state.set({ layer: "b", channel: 4 });
  assert.deepEqual(told, [["channel"], ["layer", "channel"]]);
});

test("a zoom keeps the point under the pointer, and its part inside", () => {
  const state = fresh();
  state.zoom(4, 0.5, 0.25);
  const { k, x, y } = state.values.zoom;
  assert.ok(Math.abs((0.5 - x) * k - 0.5) < 1e-12 && Math.abs((0.25 - y) * k - 0.25) < 1e-12);
  state.pan(k, -1, 2);
  assert.deepEqual(state.values.zoom, { k: 4, x: 0, y: 0.75 });
  state.zoom(1e-3, 0.5, 0.5);
  assert.deepEqual(state.values.zoom, { k: 1, x: 0, y: 0 });
});

test("what is pointed at goes before what was chosen", () => {
  const state = fresh();
  assert.equal(state.spot, null);
  state.set({ place: [0.1, 0.2] });
  assert.deepEqual(state.spot, [0.1, 0.2]);
  state.set({ hover: [0.6, 0.5] });
  assert.deepEqual(state.spot, [0.6, 0.5]);
});

test("tiles fit into their room, and are as large as fit", () => {
  for (const count of [1, 3, 64, 512, 2048])
    for (const [width, height] of [[300, 200], [900, 400], [200, 700]]) {
      const { columns, rows, width: wide, height: high } = layout(count, 1, Number(width), Number(height));
      assert.ok(columns * wide <= Number(width), `${columns} of ${wide} in ${width}`);
      assert.ok(rows * high <= Number(height) || rows === 1, `${rows} of ${high} in ${height}`);
      assert.ok(wide >= 36);
    }
});
