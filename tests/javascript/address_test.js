// A link to a page has the names and values of `Explorer.settings` in Python.

import assert from "node:assert/strict";
const { test } = Deno;
import { hashOf, viewIn } from "../../web/address.ts";
import { cases } from "./cases.js";

const { facts, first, written, moved, query } = cases.address;

test("a dict of settings, as Python writes it into a link, opens its view", () => {
  const { settings, target } = viewIn(`#${query}`, facts, first);
  assert.deepEqual(settings, { ...moved, place: settings.place });
  assert.deepEqual(settings.place.map((/** @type {number} */ each) => each.toFixed(6)), moved.place.map((/** @type {number} */ each) => each.toFixed(6)));
  assert.equal(target, written.target);
});

test("a link names what differs, and leads back to it", () => {
  const hash = hashOf(moved, first, 3, facts);
  const names = new URLSearchParams(hash.slice(1));
  assert.equal(names.get("position"), written.position.join());
  for (const name of names.keys()) assert.ok(name in written, name);
  assert.deepEqual(viewIn(hash, facts, first), { settings: moved, target: 3, isLinked: true });
  assert.deepEqual(viewIn(hashOf({ ...moved, place: null }, moved, null, facts), facts, moved).settings.place, null);
});

test("what a page does not have is left out of a link", () => {
  for (const hash of ["#constructor=y&__proto__=z", "#layer=conv9&channel=x&order=none&place=2,3", "#position=99,0", "#position=x", "#sample=1&call=1&shown_after=norm", "#over_input=perhaps"])
    assert.deepEqual(viewIn(hash, facts, first), { settings: first, target: null, isLinked: false }, hash);
});
