// The classes of a network that runs in the page: their names, and the likeliest first.

import { percent, short } from "./numbers.ts";
import type { ClassFacts, Prediction } from "./messages.d.ts";

export function className({ names, word }: ClassFacts, number: number) {
  return names[number] ?? `${word} ${number}`;
}

/** The softmax of logits, and the sigmoid of a single one; what may be probabilities, unchanged. */
export function probabilitiesOf(logits: Float32Array): number[] {
  const all = [...logits];
  const [only] = all;
  if (all.length === 1) return [only >= 0 && only <= 1 ? only : 1 / (1 + Math.exp(-only))];
  const sum = all.reduce((total, each) => total + each, 0);
  if (all.every((value) => value >= 0) && Math.abs(sum - 1) < 1e-3) return all;
  const most = Math.max(...all);
  const raised = all.map((value) => Math.exp(value - most));
  const whole = raised.reduce((total, each) => total + each, 0);
  return raised.map((value) => value / whole);
}

/**
 * Classes, the likeliest first, as the app shows them; of a model that is not a classifier, and of
 * a single output, the scores.
 * @param before Those without the edits.
 */
export function rankedClasses(
  logits: Float32Array,
  classes: ClassFacts,
  before: Float32Array | null,
): Prediction[] {
  if (logits.some(Number.isNaN)) return [];
  const areShares = classes.word === "class" && logits.length > 1;
  const [now, was] = areShares
    ? [probabilitiesOf(logits), before && probabilitiesOf(before)]
    : [logits, before];
  const words = (value: number) => {
    if (areShares) return percent(value);
    const [share] = probabilitiesOf(logits);
    const sigmoid = logits.length > 1 || share === value ? "" : `, sigmoid ${percent(share)}`;
    return `score ${short(value)}${sigmoid}`;
  };
  const order = Array.from(now, (_, number) => number)
    .sort((a, b) => now[b] - now[a] || a - b);
  return order.map((number) => {
    const [value, earlier] = [now[number], was ? was[number] : null];
    const change = earlier === null
      ? ""
      : areShares
      ? `${signedText((100 * (value - earlier)).toFixed(1))} pp`
      : signedText(short(value - earlier));
    const name = className(classes, number);
    return { number, name, value, words: words(value), before: earlier, change };
  });
}

/** A rounded number with its sign; zero has none. */
function signedText(text: string) {
  const size = text.replace(/[-−]/, "");
  return Number(size) === 0 ? size : `${size === text ? "+" : "−"}${size}`;
}
