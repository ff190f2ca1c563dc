// A guided page without its elements: which answers are right, and what is handed in.

/**
 * @typedef {"view" | "number" | "text" | "open"} Kind
 * @typedef {{question: string, state: any, kind: Kind, answer: any, hint: string, explanation: string,
 *   tolerance: number, choices: string[]}} Step
 * @typedef {{title: string, id: string, steps: Step[]}} Course
 * @typedef {{given: any, right: boolean | null, tries: number}} Answer
 */

/** @param {any} text */
const folded = (text) => String(text).trim().split(/\s+/).join(" ").toLowerCase();

/**
 * Is an answer right? Null where that is not judged; as `Step.right` in Python.
 * @param {Step} step
 * @param {any} given What was written, or the settings of the view.
 * @returns {boolean | null}
 */
export function judged(step, given) {
  if (step.kind === "open") return null;
  if (step.kind === "view")
    return Object.entries(step.answer).every(([name, values]) => {
      const written = JSON.stringify(given[name]);
      return values.some((/** @type {any} */ value) => JSON.stringify(value) === written);
    });
  if (step.kind === "text") return step.answer.some((/** @type {string} */ each) => folded(each) === folded(given));
  return Math.abs(numberOf(given) - step.answer) <= step.tolerance * (Math.abs(step.answer) || 1);
}

/**
 * A number as students write it; NaN for any other text.
 * @param {any} text
 */
export function numberOf(text) {
  const written = String(text).trim().replace(",", ".").replace("−", "-");
  return written === "" ? Number.NaN : Number(written);
}

/**
 * The part of the view that a question is about: the settings in its answer.
 * @param {Step} step
 * @param {any} settings
 * @param {any} facts Of the page: what is switched off, and the predictions.
 */
export function pointedAt(step, settings, facts = {}) {
  const off = (facts.edits ?? []).filter((/** @type {any} */ edit) => edit.factor === 0);
  const pairs = off.map((/** @type {any} */ edit) => [edit.layer, edit.channel]);
  // Only a channel that is alone can be the answer.
  const now = { ...settings, off: pairs.length === 1 ? pairs[0] : pairs, prediction: facts.predictions?.[0]?.name ?? null };
  return Object.fromEntries(Object.keys(step.answer).map((name) => [name, now[name]]));
}

/**
 * Settings in words.
 * @param {any} settings
 */
export function inWords(settings) {
  const words = (/** @type {any} */ value) => (value === null || value === undefined || value.length === 0 ? "none" : String(value));
  return Object.entries(settings)
    .map(([name, value]) => `${name} ${words(value)}`)
    .join(", ");
}

/**
 * The answer after one more try; once right, it stays right.
 * @param {Step} step
 * @param {Answer | undefined} before
 * @param {any} given
 * @returns {Answer}
 */
export function tried(step, before, given) {
  if (before?.right) return before;
  return { given, right: judged(step, given), tries: (before?.tries ?? 0) + 1 };
}

/**
 * What a student hands in; `hookviz.grade` reads it.
 * @param {Course} course
 * @param {string} name
 * @param {Array<Answer | undefined>} answers
 */
export function sheet(course, name, answers) {
  return {
    kind: "hookviz answers",
    lesson: course.id,
    title: course.title,
    name,
    saved: new Date().toISOString(),
    answers: course.steps.map(({ question }, number) => ({
      question,
      given: answers[number]?.given ?? null,
      right: answers[number]?.right ?? null,
      tries: answers[number]?.tries ?? 0,
    })),
  };
}

/**
 * What was kept of this page, if it is of this page.
 * @param {string | null} text
 * @param {Course} course
 * @returns {{name: string, place: number, answers: Array<Answer | undefined>}}
 */
export function restored(text, course) {
  const fresh = { name: "", place: 0, answers: [] };
  try {
    const kept = JSON.parse(text ?? "");
    const inside = Number.isInteger(kept.place) && kept.place >= 0 && kept.place < course.steps.length;
    return Array.isArray(kept.answers) && inside ? { ...fresh, ...kept } : fresh;
  } catch {
    return fresh;
  }
}
