// A guided page judges answers as Python does, keeps what is right, and survives a broken storage.

import assert from "node:assert/strict";
const { test } = Deno;
import { inWords, judged, numberOf, pointedAt, restored, sheet, tried } from "../../web/answers.ts";
import { cases } from "./cases.js";

test("answers are right as in Python", () => {
  assert.ok(cases.answers.length > 20);
  for (const { step, given, right } of cases.answers) assert.equal(judged(step, given), right, JSON.stringify({ step, given }));
});

const base = { question: "?", state: null, hint: "", explanation: "", tolerance: 0.01, choices: [] };
const text = { ...base, kind: /** @type {"text"} */ ("text"), answer: ["cat"] };
const course = { title: "T", id: "1", steps: [text, { ...base, kind: /** @type {"open"} */ ("open"), answer: null }] };

test("tries are counted, and once right it stays right", () => {
  let answer = tried(text, undefined, "dog");
  assert.deepEqual(answer, { given: "dog", right: false, tries: 1 });
  answer = tried(text, answer, " Cat");
  assert.deepEqual(answer, { given: " Cat", right: true, tries: 2 });
  assert.equal(tried(text, answer, "dog"), answer);
});

test("of the view only what is asked for is the answer", () => {
  const view = { ...base, kind: /** @type {"view"} */ ("view"), answer: { channel: [1, 2] } };
  assert.deepEqual(pointedAt(view, { channel: 2, layer: "a" }), { channel: 2 });
});

test("a channel that is switched off alone is an answer, and so is the top class", () => {
  const view = { ...base, kind: /** @type {"view"} */ ("view"), answer: { off: [["a", 3]], prediction: ["cat"] } };
  const [off, half] = [{ layer: "a", channels: [3], factor: 0 }, { layer: "a", channels: [4], factor: 0.5 }];
  const predictions = [{ name: "cat" }, { name: "dog" }];
  const alone = pointedAt(view, {}, { edits: [off, half], predictions });
  assert.deepEqual(alone, { off: ["a", 3], prediction: "cat" });
  assert.equal(judged(view, alone), true);
  const two = pointedAt(view, {}, { edits: [off, { ...off, channels: [5] }], predictions });
  assert.equal(judged(view, two), false);
  assert.equal(inWords(alone), "channel 3 of layer a off, prediction cat");
  assert.equal(inWords(pointedAt(view, {}, { edits: [off, half, { ...off, channels: [5] }], predictions })), "channel 3 of layer a, channel 5 of layer a off, prediction cat");
  assert.equal(inWords(pointedAt(view, {}, { edits: [], predictions: [] })), "no channel off, no prediction yet");
  assert.equal(inWords({ position: [4, 12] }), "row 4, column 12");
  assert.equal(inWords({ position: null }), "no position yet");
});

test("a prediction is compared as the question has it, and shown by its name", () => {
  const classes = { count: 4, names: ["cat"], word: "output" };
  const facts = { classes, predictions: [{ number: 3, name: "output 3" }] };
  const asked = (/** @type {unknown[]} */ prediction) => ({ ...base, kind: /** @type {"view"} */ ("view"), answer: { prediction } });
  for (const [answers, right] of [[[3], true], [[1, 3], true], [["output 3"], true], [[0], false], [["cat"], false]]) {
    const given = pointedAt(asked(answers), {}, facts);
    assert.equal(judged(asked(answers), given), right, JSON.stringify(answers));
    assert.equal(inWords(given, classes), "prediction output 3");
  }
  assert.equal(inWords({ prediction: 0 }, classes), "prediction cat");
  assert.equal(inWords(pointedAt(asked([3]), {}, { predictions: [] }), classes), "no prediction yet");
});

test("a number may have a decimal comma; a word is none", () => {
  assert.deepEqual(["0,5", " −3 ", "ninety", ""].map(numberOf), [0.5, -3, NaN, NaN]);
});

test("a sheet has every question, answered or not", () => {
  const made = sheet(course, "Ada", [tried(text, undefined, "cat")], []);
  assert.ok(Math.abs(Date.parse(made.saved) - Date.now()) < 60000);
  assert.deepEqual(made.answers.map((each) => [each.given, each.right, each.tries]), [["cat", true, 1], [null, null, 0]]);
});

test("text that was never checked is handed in, but does not replace a right answer", () => {
  const given = (/** @type {any[]} */ answers, /** @type {any[]} */ drafts) =>
    sheet(course, "Ada", answers, drafts).answers.map((each) => [each.given, each.right, each.tries]);
  assert.deepEqual(given([], [" Cat", "since"]), [[" Cat", true, 0], ["since", null, 0]]);
  assert.deepEqual(given([tried(text, undefined, "dog")], ["fish", " \n"]), [["fish", false, 1], [null, null, 0]]);
  assert.deepEqual(given([tried(text, undefined, "cat")], ["dog", null]), [["cat", true, 1], [null, null, 0]]);
});

test("what was kept of another page, or broken, is a fresh start", () => {
  const fresh = { name: "", place: 0, answers: [], drafts: [] };
  for (const kept of [null, "", "{", "3", "null", '{"place": 7, "answers": []}', '{"place": 0}'])
    assert.deepEqual(restored(kept, course), fresh);
  const kept = { name: "Ada", place: 1, answers: [tried(text, undefined, "cat")], drafts: ["cat", "since"] };
  assert.deepEqual(restored(JSON.stringify(kept), course), kept);
});
