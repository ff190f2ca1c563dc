// A value is taken apart as Python takes it apart: the same products, and the same way on and back.

import assert from "node:assert/strict";
import { test } from "node:test";
import { answered, kernelsOf, onward, positionOf, reason, termsAt } from "../../hookviz/static/terms.js";
import { array, cases } from "./cases.js";

/**
 * @param {any} written
 * @returns {any}
 */
const heldOf = ({ recipe, arrays, map }) => ({
  recipe,
  arrays: Object.fromEntries(Object.entries(arrays).map(([name, each]) => [name, { shape: [], values: array(each) }])),
  map: map && { shape: [], values: array(map) },
});

/**
 * @param {ArrayLike<number>} found
 * @param {ArrayLike<number>} wanted
 * @param {number} [far] As a fraction of the largest.
 */
function close(found, wanted, far = 1e-12) {
  assert.equal(found.length, wanted.length);
  const most = Math.max(1, ...Array.from(wanted, Math.abs));
  Array.from(wanted).forEach((value, i) => {
    assert.ok(Math.abs(/** @type {number} */ (found[i]) - value) <= far * most, `${found[i]} for ${value}`);
  });
}

for (const each of cases.terms)
  test(`taken apart: ${each.name}`, () => {
    const held = heldOf(each);
    for (const { channel, position, bias, kernel, patch, byChannel } of each.values) {
      const found = termsAt(held, channel, position);
      assert.equal(found.bias, bias);
      assert.deepEqual(Array.from(found.kernel), Array.from(array(kernel)));
      assert.deepEqual(Array.from(found.patch), Array.from(array(patch)));
      close(found.byChannel, array(byChannel));
      assert.equal(found.bound, 0);
    }
  });

for (const { layer, channel, position, said } of cases.reasons)
  test(`as the kernel says: ${layer}, channel ${channel} at (${position})`, () => {
    const all = new Map(Object.entries(cases.held).map(([name, each]) => [name, heldOf(each)]));
    const found = reason(all.get(layer), channel, position, (name) => all.get(name) ?? null);
    for (const name of ["layer", "call", "channel", "position", "others", "constants", "size", "sources"])
      assert.deepEqual(/** @type {any} */ (found)[name], said[name], name);
    for (const name of ["value", "bias", "rest", "constant"])
      close([Number(/** @type {any} */ (found)[name])], [Number(said[name])], 1e-9);
    const known = said.after.slice(0, found.after.length);
    assert.deepEqual(found.after.map(([name]) => name), known.map((/** @type {any} */ [name]) => name));
    close(found.after.map(([, value]) => Number(value)), known.map((/** @type {any} */ [, value]) => Number(value)), 1e-9);
    assert.equal(found.terms.length, said.terms.length);
    found.terms.forEach((term, place) => {
      const wanted = said.terms[place];
      for (const name of ["channel", "tap", "window"]) assert.deepEqual(/** @type {any} */ (term)[name], wanted[name], name);
      close([Number(term.contribution)], [Number(wanted.contribution)], 1e-9);
      const came = (/** @type {any} */ origin) => [origin.layer, origin.call, origin.channel, origin.position, origin.path, origin.exact];
      assert.deepEqual(term.origins.map(came), wanted.origins.map(came));
      if (term.origins.length === 1 && term.origins[0]?.exact) close([Number(term.origins[0]?.value)], [Number(wanted.origins[0].value)], 1e-9);
    });
  });

for (const { layer, channel, position, plain, placed } of cases.reasons)
  test(`kernels as the kernel sends them: ${layer}, channel ${channel}`, () => {
    const held = heldOf(cases.held[layer]);
    for (const [wanted, place] of placed ? [[plain, null], [placed, position]] : [[plain, null]]) {
      const found = kernelsOf(held, channel, place);
      for (const name of ["layer", "channel", "kind", "by", "channels", "total", "size"])
        assert.deepEqual(/** @type {any} */ (found)[name], wanted[name], name);
      close(found.numbers.map(Number), wanted.numbers.map(Number), 1e-9);
      close(found.arrays.tiles.values, array(wanted.tiles), 1e-7);
      assert.deepEqual(found.facts.map(([name]) => name), wanted.facts.map((/** @type {any} */ [name]) => name));
      close(found.facts.map(([, value]) => Number(value)), wanted.facts.map((/** @type {any} */ [, value]) => Number(value)), 1e-9);
      const { low, high, all, own } = wanted.bins;
      assert.deepEqual({ ...found.bins, low: Number(found.bins.low), high: Number(found.bins.high) }, { low: Number(low), high: Number(high), all, own });
    }
  });

for (const { rule, given, wanted } of cases.rules)
  test(`on its way: ${rule.join(" ")}`, () => {
    const [values, results] = [array(given), array(wanted)];
    const held = /** @type {any} */ ({ recipe: { after: [["it", ...rule]] }, arrays: {} });
    close(Array.from(values, (/** @type {number} */ x) => onward(held, 0, x).values[0]?.[1] ?? NaN), results, 1e-7);
  });

test("rounded numbers are told with a bound that holds", () => {
  for (const each of cases.rounded) {
    const [exact, rounded] = [heldOf(each.exact), heldOf(each.rounded)];
    for (const name of ["weight", "given"]) Object.assign(rounded.arrays[name], { approximate: true, scale: each.rounded.scales[name] });
    for (const { channel, position } of each.exact.values) {
      const [one, other] = [termsAt(exact, channel, position), termsAt(rounded, channel, position)];
      const sum = (/** @type {any} */ terms) => terms.byChannel.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, terms.bias);
      assert.ok(Math.abs(sum(one) - sum(other)) <= other.bound * (1 + 1e-9), `${sum(one)} and ${sum(other)}, ± ${other.bound}`);
      assert.ok(other.bound > 0);
    }
  }
});

test("what is not in the page needs the notebook", () => {
  const held = heldOf(cases.terms[0]);
  const ask = (/** @type {any} */ question, /** @type {any} */ why, /** @type {any} */ found) => answered({ channel: 0, ...question }, why, () => found);
  const why = { layers: { a: { block: "why-0" }, b: { none: "it squares." } }, output: null };
  const question = { layer: "a", call: 0, place: [0, 0] };
  assert.match(ask({ ...question, layer: "b" }, why, held).none, /^Why needs the notebook: it squares\.$/);
  assert.match(ask({ ...question, layer: "c" }, why, held).none, /this layer is not in this page/);
  assert.match(ask({ output: 3 }, why, held).none, /the output is not a layer's number/);
  assert.match(ask(question, null, held).none, /holds no weights/);
  assert.match(ask(question, why, { ...held, arrays: {} }).none, /do not fit into this page/);
  assert.equal(ask(question, why, undefined), null);
  assert.equal(ask({ ...question, layer: "a" }, why, held).channel, 0);
});

test("a place is a position", () => {
  const of = (/** @type {number[]} */ shape, /** @type {number[]} */ place, depth = 0) => positionOf(/** @type {any} */ ({ shape }), place, depth);
  assert.deepEqual(of([4, 8], [0.5, 0.99]), [2, 7]);
  assert.deepEqual(of([3, 4, 8], [0.5, 1], 2), [2, 2, 7]);
  assert.deepEqual(of([8], [0.1, 0.5]), [4]);
  assert.deepEqual(of([], [0.1, 0.5]), []);
});
