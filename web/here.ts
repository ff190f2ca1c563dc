// Orders that depend on where the user is: by what the channels are at the chosen place, or by how
// like one of them the others are.

import { descending } from "./measures.ts";
import { short } from "./numbers.ts";
import { placeIn, positionIn } from "./state.ts";
import type { Layer } from "./layer.ts";
import type { Values } from "./state.ts";
import type { Source } from "./source.ts";

/** Channels in order; `name` is "index" where what it needs is missing. */
export interface Ranking {
  order: ArrayLike<number>;
  scores: ArrayLike<number> | null;
  name: string;
  key: string;
  words: string;
  /** What a score is called beside a value. */
  label: string;
}

const SCORE_NAMES: Record<string, string> = {
  value: "value",
  contrast: "z-score",
  contribution: "value × gradient",
};
const GOING = "by number: on its way …";
const NO_GRADIENT = "by number: no gradient arrives here";

export const isHere = (order: string) => order in SCORE_NAMES;

/** The channels' order, by scores that the browser finds where its values are exact. */
export class Rankings {
  constructor(public source: Source) {}

  of(data: Layer, at: Values): Ranking {
    const plain = (name: string, words = "") => (
      { order: data.order(name), scores: null, name, key: name, words, label: "" }
    );
    const none = (words: string) => plain("index", words);
    const here = isHere(at.order);
    if (!here && at.order !== "similarity") return plain(data.orderOf(at.order));
    if (here && !at.place) return none("by channel number: click a position first");
    const [row, column] = positionIn(at.place ?? [0, 0], data.header.size);
    const reference = Math.min(at.reference_channel, data.count - 1);
    const key = here ? `${at.order} ${row} ${column}` : `${at.order} ${reference}`;
    const exact = isExact(data, at);
    const asked = !exact && this.source.live && this.source.scores;
    const found = asked
      // One question for each position: about its middle.
      ? this.source.scores?.(at, placeIn([row, column], data.header.size)!, reference)
      : data.once(`scores ${key}`, () => scoresOf(data, at.order, { row, column }, reference));
    if (found === null) return none(asked ? GOING : NO_GRADIENT);
    const scores = found!;
    if (!scores.length) return none(NO_GRADIENT);
    const order = data.once(`order ${key} ${Boolean(asked)}`, () => descending(scores));
    const rough = exact || asked ? "" : "(rounded)";
    const words = [here ? "" : `to ${data.word} ${reference}`, rough].filter(Boolean)
      .join(" ");
    const label = SCORE_NAMES[at.order] ?? `cosine with ${reference}`;
    return { order, scores, name: at.order, key, words, label };
  }

  /** The shown channel's score, beside its value at the place. */
  reading({ scores, name, label }: Ranking, at: Values): Array<[string, string]> {
    if (!scores || name === "value") return [];
    const score = scores[at.channel];
    const isCosine = name === "similarity";
    if (isCosine && score === Infinity) return []; // with itself
    // A map that is zero everywhere has no direction.
    return [[label, isCosine && Number.isNaN(score) ? "not defined" : short(score)]];
  }
}

/** @param ranking Whether its scores are being worked out. */
export const isGoing = (ranking: Ranking) => ranking.words === GOING;

/**
 * Whether the browser has the very values: not rounded, not averaged, not after another operation or of another run
 * than the gradients.
 */
function isExact(data: Layer, at: Values) {
  const { maps, gradients } = data.arrays;
  const [height, width] = data.header.size;
  const whole = data.height === height && data.width === width && !maps?.approximate;
  if (at.order !== "contribution") return whole;
  return whole && !gradients?.approximate && !data.header.shown_after &&
    at.shown_run !== "difference";
}

/**
 * Each channel's score, as `scores_here` and `similarities` of hookviz.view.layer have it; null
 * where what it needs is not there.
 */
export function scoresOf(
  data: Layer,
  order: string,
  { row, column }: { row: number; column: number },
  reference: number,
): Float64Array | null {
  if (!data.width || (order === "contribution" && !data.graded)) return null;
  const [height, width] = data.header.size;
  const y = Math.floor((row * data.height) / height);
  const x = Math.floor((column * data.width) / width);
  const place = y * data.width + x;
  const every = (score: (channel: number) => number) =>
    Float64Array.from({ length: data.count }, (_, channel) => score(channel));
  const value = (channel: number) => data.map("maps", channel)[place];
  if (order === "value") return every(value);
  if (order === "contribution") {
    return every((channel) => value(channel) * data.map("gradients", channel)[place]);
  }
  if (order === "contrast") {
    return every((channel) => deviations(data.map("maps", channel), value(channel)));
  }
  const direction = scaled(data.map("maps", reference));
  const length = dot(direction, direction);
  return every((channel) => {
    if (channel === reference) return Infinity; // first, also before its copies
    const own = scaled(data.map("maps", channel));
    return dot(own, direction) / Math.sqrt(dot(own, own) * length);
  });
}

/** How many standard deviations of the finite values a value is above their mean. */
function deviations(values: ArrayLike<number>, value: number) {
  const finite = Array.from(values).filter(Number.isFinite);
  if (!finite.length || finite.every((each) => each === finite[0])) {
    return finite[0] === value ? 0 : finite.length ? value - finite[0] : NaN;
  }
  const mean = finite.reduce((sum, each) => sum + each, 0) / finite.length;
  const squares = finite.reduce((sum, each) => sum + (each - mean) ** 2, 0);
  return (value - mean) / Math.sqrt(squares / finite.length);
}

/** By the largest magnitude, so that no square overflows. */
function scaled(values: ArrayLike<number>) {
  let most = 0;
  for (let i = 0; i < values.length; i++) {
    const size = Math.abs(values[i]);
    if (!(size <= most)) most = size; // also of NaN
  }
  return Float64Array.from(values, (each) => each / most);
}

function dot(a: Float64Array, b: Float64Array) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
