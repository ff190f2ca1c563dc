// The table of words, and its patterns.

import assert from "node:assert/strict";
import { test } from "node:test";
import { speak, word } from "../../hookviz/static/words.js";

test("one row is no rows, in German too", () => {
  speak("de");
  assert.equal(word("sees 1×1 pixels, row 5, column 11"), "sieht 1×1 Pixel, Zeile 5, Spalte 11");
  assert.equal(word("sees 2×3 pixels, rows 0–1 and 1 in the padding, columns 4–6"), "sieht 2×3 Pixel, Zeilen 0–1 und 1 in der Auffüllung, Spalten 4–6");
  assert.equal(
    word("40 % lies beyond what the target sees here: row 12, columns 9–11"),
    "40 % liegt außerhalb dessen, was das Ziel hier sieht: Zeile 12, Spalten 9–11",
  );
  speak("en");
});
