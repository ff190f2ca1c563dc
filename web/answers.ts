// A guided page without its elements: which answers are right, and what is handed in.

import { className } from "./classes.ts";
import type { ClassFacts, Settings } from "./messages.d.ts";
import type { Facts } from "./source.ts";
import type { Values } from "./state.ts";

type Kind = "view" | "number" | "text" | "open";
export interface Step {
  question: string;
  state: Partial<Values>;
  kind: Kind;
  answer: Record<string, unknown[]> | string[] | number;
  hint: string;
  explanation: string;
  tolerance: number;
  choices: string[];
}
export interface Course {
  title: string;
  id: string;
  steps: Step[];
}
export interface Answer {
  given: unknown;
  right: boolean | null;
  tries: number;
}
/** What the browser stores. */
interface Progress {
  name: string;
  place: number;
  answers: Array<Answer | undefined>;
  drafts: Array<string | undefined>;
}

const folded = (text: unknown) => String(text).trim().split(/\s+/).join(" ").toLowerCase();

/**
 * Is an answer right? Null where that is not judged; as `Step.right` in Python.
 * @param given What was written, or the settings of the view.
 */
export function judged(step: Step, given: unknown): boolean | null {
  if (step.kind === "open") return null;
  if (step.kind === "view") {
    return Object.entries(step.answer as Record<string, unknown[]>).every(([name, values]) => {
      const written = JSON.stringify((given as Record<string, unknown>)[name]);
      return values.some((value) => JSON.stringify(value) === written);
    });
  }
  if (step.kind === "text") {
    return (step.answer as string[]).some((each) => folded(each) === folded(given));
  }
  const answer = Number(step.answer);
  return Math.abs(numberOf(given) - answer) <= step.tolerance * (Math.abs(answer) || 1);
}

/** A number as students write it; NaN for any other text. */
export function numberOf(text: unknown) {
  const written = String(text).trim().replace(",", ".").replace("−", "-");
  return written === "" ? Number.NaN : Number(written);
}

/**
 * The part of the view that a question is about: the settings in its answer.
 * @param facts Of the page: what is switched off, and the predictions.
 */
export function pointedAt(step: Step, settings: Partial<Settings>, facts: Partial<Facts> = {}) {
  const off = (facts.edits ?? []).filter((edit) => edit.factor === 0);
  const pairs = off.flatMap(({ layer, channels }) => channels.map((channel) => [layer, channel]));
  const [top] = facts.predictions ?? [];
  const isByNumber = typeof (step.answer as Record<string, unknown[]>).prediction?.[0] === "number";
  // Only a channel that is alone can be the answer.
  const now: Record<string, unknown> = {
    ...settings,
    off: pairs.length === 1 ? pairs[0] : pairs,
    prediction: (isByNumber ? top?.number : top?.name) ?? null,
  };
  return Object.fromEntries(Object.keys(step.answer).map((name) => [name, now[name]]));
}

/**
 * Settings in words.
 * @param classes Names for a prediction that is a number.
 */
export function inWords(settings: Record<string, unknown>, classes?: ClassFacts) {
  return Object.entries(settings).map(([name, value]) => {
    if (name === "off") return offInWords([value].flat(2));
    if (name === "position" && Array.isArray(value)) return `row ${value[0]}, column ${value[1]}`;
    if (name === "prediction" && typeof value === "number" && classes) {
      return `prediction ${className(classes, value)}`;
    }
    return value === null ? `no ${name} yet` : `${name} ${value}`;
  }).join(", ");
}

/** @param off Layers and channels by turns. */
function offInWords(off: unknown[]) {
  const layers = off.filter((_, place) => place % 2 === 0);
  const words = layers.map((layer, number) => `channel ${off[2 * number + 1]} of layer ${layer}`);
  return words.length ? `${words.join(", ")} off` : "no channel off";
}

/** The answer after one more try; once right, it stays right. */
export function tried(step: Step, before: Answer | undefined, given: unknown): Answer {
  if (before?.right) return before;
  return { given, right: judged(step, given), tries: (before?.tries ?? 0) + 1 };
}

/**
 * The answers, and what stands in the fields but was never checked.
 * @param drafts The text of each question's field.
 */
function withDrafts(
  steps: Step[],
  answers: Array<Answer | undefined>,
  drafts: Array<string | undefined>,
) {
  return steps.map((step, number) => {
    const [before, draft] = [answers[number], drafts[number]];
    if (!draft?.trim() || before?.right || before?.given === draft) return before;
    return { given: draft, right: judged(step, draft), tries: before?.tries ?? 0 };
  });
}

/**
 * What a student hands in; `hookviz.grade` reads it.
 * @param drafts The text of each question's field, checked or not.
 */
export function sheet(
  course: Course,
  name: string,
  answers: Array<Answer | undefined>,
  drafts: Array<string | undefined>,
) {
  const given = withDrafts(course.steps, answers, drafts);
  return {
    kind: "hookviz answers",
    lesson: course.id,
    title: course.title,
    name,
    saved: new Date().toISOString(),
    answers: course.steps.map(({ question }, number) => ({
      question,
      given: given[number]?.given ?? null,
      right: given[number]?.right ?? null,
      tries: given[number]?.tries ?? 0,
    })),
  };
}

/** What was kept of this page, if it is of this page. */
export function restored(
  text: string | null,
  course: Course,
): Progress {
  const fresh = { name: "", place: 0, answers: [], drafts: [] };
  try {
    const kept = JSON.parse(text ?? "");
    const inside = Number.isInteger(kept.place) && kept.place >= 0 &&
      kept.place < course.steps.length;
    return Array.isArray(kept.answers) && inside ? { ...fresh, ...kept } : fresh;
  } catch {
    return fresh;
  }
}
