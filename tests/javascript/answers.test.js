// A guided page judges answers as Python does, keeps what is right, and survives a broken storage.

import assert from "node:assert/strict";
import { test } from "node:test";
import { judged, pointedAt, restored, sheet, tried } from "../../hookviz/static/answers.js";
import { speak, speakFor, word } from "../../hookviz/static/words.js";
import { cases } from "./cases.js";

test("answers are right as in Python", () => {
  assert.ok(cases.answers.length > 20);
  for (const { step, given, right } of cases.answers) assert.equal(judged(step, given), right, JSON.stringify({ step, given }));
});

const base = { question: "?", state: null, hint: "", tolerance: 0.01, choices: [] };
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

test("a sheet has every question, answered or not", () => {
  const made = sheet(course, "Ada", [tried(text, undefined, "cat")]);
  assert.deepEqual(made.answers.map((each) => [each.given, each.right, each.tries]), [["cat", true, 1], [null, null, 0]]);
});

test("what was kept of another page, or broken, is a fresh start", () => {
  const fresh = { name: "", place: 0, answers: [] };
  for (const kept of [null, "", "{", "3", "null", '{"place": 7, "answers": []}', '{"place": 0}'])
    assert.deepEqual(restored(kept, course), fresh);
  const kept = { name: "Ada", place: 1, answers: [tried(text, undefined, "cat")] };
  assert.deepEqual(restored(JSON.stringify(kept), course), kept);
});

test("a language translates whole texts and those with gaps; English is as it is", () => {
  assert.equal(word("channel 3 of 96"), "channel 3 of 96");
  speak("de");
  assert.equal(word("all layers"), "alle Schichten");
  assert.equal(word("channel 3 of 96"), "Kanal 3 von 96");
  assert.equal(word("head 1 ×"), "Kopf 1 ×");
  assert.equal(word("6×6, seen from patch (2, 1)"), "6×6, gesehen von Patch (2, 1)");
  assert.equal(word("question 2, right"), "Frage 2, right");
  assert.equal(word("layer3.0.conv1"), "layer3.0.conv1");
  assert.equal(word("−0.3 to 1.2"), "−0.3 bis 1.2");
  assert.equal(word("taken according to the map of it"), "taken according to the map of it");
  assert.equal(word("3 of 96 off, class 4 31 %"), "3 von 96 aus, class 4 31 %");
  assert.equal(word("layer3.0, channel 4, row 1, column 2"), "layer3.0, Kanal 4, Zeile 1, Spalte 2");
  const said = "No NaN or Inf in 49 layers, on 1 picture. Silent on this picture: up to 37 % of the channels, in 15 layers.";
  assert.equal(word(said), "Kein NaN oder Inf in 49 Schichten, bei 1 Bild. Stumm bei diesem Bild: bis zu 37 % der Kanäle, in 15 Schichten.");
  assert.equal(word("Conv2d 3×3, stride 2, 3 → 8 channels · 8×5×5"), "Conv2d 3×3, Schrittweite 2, 3 → 8 Kanäle · 8×5×5");
  assert.equal(word("input, 2,278 pixels: grey ✕"), "Eingabe, 2,278 Pixel: grau ✕");
  assert.equal(word("a.b, channels [1, 2]: off"), "a.b, Kanäle [1, 2]: aus");
  speak("xx");
  assert.equal(word("all layers"), "all layers");
});

test("a layer or class that is called like a word keeps its name", () => {
  speakFor({ language: "de", layers: [{ name: "head" }], classes: { names: ["depth", "class 1"] } });
  assert.deepEqual(["head", "depth", "go to head", "head, channel 4"].map(word), ["head", "depth", "gehe zu head", "head, Kanal 4"]);
  assert.equal(word("input"), "Eingabe");
  speak("en");
});
