// The answers of the panels "why?" and "weights" that a page holds, see hookviz/export/walk.py.

import type { Numbers } from "./layer.ts";
import type { Reason, ReasonQuestion, Reasons } from "./source.ts";

/** The answers that a page holds; that about the prediction also has the number of its class. */
export interface HeldAnswers {
  header: {
    answers: Array<Omit<Reasons["why"], "arrays"> & { output?: number }>;
    weights: Array<Omit<Reasons["weights"], "arrays">>;
    none: string;
  };
  arrays: Record<string, Numbers>;
}

const NEEDS = "This needs the notebook: ";

/** What was answered, by question: the same object each time. */
const answers: WeakMap<HeldAnswers, Map<string, Reason<ReasonQuestion["ask"]>>> = new WeakMap();

/**
 * Find the answer to a question among those of a page.
 * @param size Height and width of the map in which a place is chosen.
 */
export function answered<Asked extends ReasonQuestion>(
  question: Asked,
  held: HeldAnswers,
  size: number[],
): Reason<Asked["ask"]> {
  const known = answers.get(held) ?? new Map();
  const key = JSON.stringify(question);
  if (!known.has(key)) known.set(key, answer(question, held, size));
  answers.set(held, known);
  return known.get(key);
}

function answer(
  question: ReasonQuestion,
  { header: { answers, weights, none }, arrays }: HeldAnswers,
  size: number[],
): Reason<"weights"> | Reason<"why"> {
  if (question.ask === "weights") {
    const found = weights.find(({ layer, channel }) =>
      layer === question.layer && channel === question.channel
    );
    return found
      ? { ...found, arrays: { tiles: arrays.tiles } }
      : { none: `${NEEDS}the page has only the kernels of a first layer.` };
  }
  if (question.ask !== "why") return { none: `${NEEDS}a page cannot run the network.` };
  const position = question.output === undefined ? positionOf(question, size) : [];
  const fits = (answer: HeldAnswers["header"]["answers"][number]) =>
    question.output === undefined
      ? answer.layer === question.layer && answer.channel === question.channel &&
        String(answer.position) === String(position)
      : answer.output === question.output;
  const number = answers.findIndex(fits);
  if (number < 0) {
    return {
      none: NEEDS +
        (none ||
          "this page explains only the prediction and the values that contribute most to it. Start at the prediction."),
    };
  }
  const own = ["kernel", "patch"].map((name) => [name, arrays[`${number} ${name}`]]);
  return { ...answers[number], arrays: Object.fromEntries(own.filter(([, array]) => array)) };
}

/** The position that is asked about: chosen in the map as fractions, or given. */
function positionOf({ position, place }: ReasonQuestion & { ask: "why" }, size: number[]) {
  if (!place) return position ?? [];
  const fractions = place.slice(-size.length);
  return size.map((all, axis) => Math.min(Math.floor(fractions[axis] * all), all - 1));
}
