// The questions of a guided page, above the view that answers them; progress is kept in the browser.

import { inWords, judged, numberOf, pointedAt, restored, sheet, tried } from "./answers.ts";
import { download, el, setAttribute, setText, visible } from "./dom.ts";
import type { App } from "./app.ts";
import type { Answer, Course } from "./answers.ts";

const START = "start again";

/** One question at a time. */
export class Lesson {
  key: string;
  answers: (Answer | undefined)[];
  place: number;
  marks: HTMLButtonElement[];
  progress = el("span", { class: "hv-dim" });
  name: HTMLInputElement;
  save = el("button", { type: "button", title: "a file to hand in" }, "save answers");
  again = el("button", { type: "button", title: "delete name and answers, for the next student" });
  question = el("h2", { class: "hv-question" });
  field = el("input", { type: "text", "aria-label": "your answer", autocomplete: "off" });
  area = el("textarea", { rows: "3", "aria-label": "your answer" });
  menu = el("select", { "aria-label": "your answer" });
  chosen = el("span", { class: "hv-dim" });
  check = el("button", { type: "submit", class: "hv-check" }, "check");
  back = el("button", { type: "button" }, "back");
  next = el("button", { type: "button" }, "next");
  form: HTMLFormElement;
  verdict = el("div", { role: "status", class: "hv-judged" });
  root: HTMLElement;

  /**
   * @param app The view.
   * @param root Of the view; the questions stand at its top.
   */
  constructor(public course: Course, public app: App, root: HTMLElement) {
    this.key = `hookviz ${course.id}`;
    const kept = restored(this.stored(), course);
    this.answers = kept.answers;
    this.place = kept.place;
    this.marks = course.steps.map((_, number) => {
      const button = el("button", { type: "button", class: "hv-step" }, String(number + 1));
      button.addEventListener("click", () => this.go(number));
      return button;
    });
    this.name = el("input", {
      type: "text",
      placeholder: "your name",
      "aria-label": "your name",
      value: kept.name,
    });
    this.name.addEventListener("input", () => this.keep());
    this.save.addEventListener("click", () => this.handIn());
    this.again.addEventListener("click", () => this.startAgain());
    this.again.addEventListener("blur", () => setText(this.again, START));
    setText(this.again, START);
    this.back.addEventListener("click", () => this.go(this.place - 1));
    this.next.addEventListener("click", () => this.go(this.place + 1));
    this.form = el(
      "form",
      { class: "hv-answer" },
      ...[this.field, this.area, this.menu, this.chosen, this.check, this.back, this.next],
    );
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.answer();
    });
    this.root = el(
      "section",
      { class: "hv-lesson", "aria-label": "questions" },
      el(
        "div",
        { class: "hv-title" },
        el("b", { class: "hv-model" }, course.title),
        ...this.marks,
        this.progress,
        this.name,
        this.save,
        this.again,
      ),
      this.question,
      this.form,
      this.verdict,
    );
    root.prepend(this.root);
    app.state.onChange(() => this.point());
    app.source.listeners.add(() => this.point()); // what is switched off, the predictions
    this.go(this.place);
  }

  get step() {
    return this.course.steps[this.place];
  }

  // In the browser's storage

  stored() {
    try {
      return localStorage.getItem(this.key);
    } catch {
      return null; // a frame without storage: progress is lost when the page is closed
    }
  }

  keep() {
    const { name, place, answers } = this;
    try {
      localStorage.setItem(this.key, JSON.stringify({ name: name.value, place, answers }));
    } catch {
      // as above
    }
  }

  handIn() {
    const name = this.name.value.trim();
    if (!name) {
      this.name.focus();
      this.say("Write your name first.");
      return;
    }
    const text = JSON.stringify(sheet(this.course, name, this.answers), null, 1);
    download(
      new Blob([text], { type: "application/json" }),
      `${name.replace(/[^\p{L}\p{N}]+/gu, "-")}.json`,
    );
  }

  /** The second click in a row deletes everything: browsers block dialogs in frames. */
  startAgain() {
    if (this.again.textContent === START) return setText(this.again, "delete all answers?");
    setText(this.again, START);
    this.name.value = "";
    this.answers = [];
    return this.go(0);
  }

  // One question

  go(place: number) {
    this.place = Math.min(Math.max(place, 0), this.course.steps.length - 1);
    const { step } = this;
    setText(this.question, `${this.place + 1}. ${step.question}`);
    this.app.source.restart?.(); // a network: no edits, and the page's picture
    this.app.state.set({ targetClass: null, ...step.state });
    this.app.state.fit();
    visible(this.field, ["number", "text"].includes(step.kind) && !step.choices.length);
    visible(this.area, step.kind === "open" && !step.choices.length);
    visible(this.menu, step.choices.length > 0);
    visible(this.chosen, step.kind === "view");
    setAttribute(this.field, "inputmode", step.kind === "number" ? "decimal" : null);
    setText(this.check, step.kind === "open" ? "save" : "check");
    const given = this.answers[this.place]?.given ?? "";
    this.menu.replaceChildren(
      ...["", ...step.choices].map((text) => el("option", { value: text }, text)),
    );
    if (step.kind !== "view") {
      for (const each of [this.field, this.area, this.menu]) each.value = String(given);
    }
    this.back.disabled = this.place === 0;
    this.next.disabled = this.place === this.course.steps.length - 1;
    this.show();
    this.point();
    this.keep();
  }

  /** Say which answer the view is now. */
  point() {
    if (this.step.kind !== "view") return;
    setText(this.chosen, `your answer: ${inWords(this.pointed)} (move the view to change it)`);
  }

  get pointed() {
    return pointedAt(this.step, this.app.settings, this.app.source.facts);
  }

  get written() {
    const { step } = this;
    const from = step.choices.length ? this.menu : step.kind === "open" ? this.area : this.field;
    return from.value;
  }

  answer() {
    const { step, written } = this;
    const given = step.kind === "view" ? this.pointed : written;
    if (step.kind !== "view" && !written.trim()) return;
    if (step.kind === "number" && Number.isNaN(numberOf(written))) {
      this.say("Write a number, such as 0.25.");
      return;
    }
    this.answers[this.place] = tried(step, this.answers[this.place], given);
    this.show(given);
    this.keep();
  }

  /** @param words Instead of a verdict. */
  say(words: string) {
    setText(this.verdict, words);
    setAttribute(this.verdict, "data-right", null);
  }

  /**
   * The verdict on this question, and the marks of all.
   * @param given The answer of now: after a right one another may be tried.
   */
  show(given?: unknown) {
    const { steps } = this.course;
    const answer = this.answers[this.place];
    const right = given !== undefined && answer?.right ? judged(this.step, given) : answer?.right;
    const words = right ? "✓ right" : right === null ? "saved" : "✗ not yet";
    setText(this.verdict, answer ? words : "");
    const more = right === false ? this.step.hint : this.step.explanation;
    if (answer && more) this.verdict.append(el("span", { class: "hv-hint" }, more));
    setAttribute(this.verdict, "data-right", answer ? String(right) : null);
    for (const [number, button] of this.marks.entries()) {
      const of = this.answers[number];
      setAttribute(button, "aria-current", number === this.place ? "step" : null);
      setAttribute(button, "data-right", of ? String(of.right) : null);
      const told = of ? (of.right ? "right" : of.right === null ? "saved" : "not yet") : "open";
      setAttribute(button, "aria-label", `question ${number + 1}, ${told}`);
    }
    const done = steps.filter((_, number) => this.answers[number]?.right).length;
    const all = steps.filter((step) => step.kind !== "open").length;
    setText(this.progress, `${done} of ${all} right`);
  }
}
