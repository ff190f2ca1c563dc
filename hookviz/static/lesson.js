// The questions of a guided page, above the view that answers them; progress is kept in the browser.

import { judged, pointedAt, restored, sheet, tried } from "./answers.js";
import { download, el, setAttribute, setText, sure, visible } from "./dom.js";

/** @typedef {import("./app.js").App} App */

/** One question at a time. */
export class Lesson {
  /**
   * @param {import("./answers.js").Course} course
   * @param {App} app The view.
   * @param {HTMLElement} root Of the view; the questions stand at its top.
   */
  constructor(course, app, root) {
    this.course = course;
    this.app = app;
    this.key = `hookviz ${course.id}`;
    const kept = restored(this.stored(), course);
    this.answers = kept.answers;
    this.place = kept.place;
    this.marks = course.steps.map((_, number) => {
      const button = el("button", { type: "button", class: "hv-step" }, String(number + 1));
      button.addEventListener("click", () => this.go(number));
      return button;
    });
    this.progress = el("span", { class: "hv-dim" });
    this.name = el("input", { type: "text", placeholder: "your name", "aria-label": "your name", value: kept.name });
    this.name.addEventListener("input", () => this.keep());
    this.save = el("button", { type: "button", title: "a file to hand in" }, "save answers");
    this.save.addEventListener("click", () => this.handIn());
    this.question = el("h2", { class: "hv-question" });
    this.field = el("input", { type: "text", "aria-label": "your answer", autocomplete: "off" });
    this.menu = el("select", { "aria-label": "your answer" });
    this.chosen = el("span", { class: "hv-dim" });
    this.check = el("button", { type: "submit", class: "hv-check" }, "check");
    this.back = el("button", { type: "button" }, "back");
    this.next = el("button", { type: "button" }, "next");
    this.back.addEventListener("click", () => this.go(this.place - 1));
    this.next.addEventListener("click", () => this.go(this.place + 1));
    this.form = el(
      "form",
      { class: "hv-answer" },
      ...[this.field, this.menu, this.chosen, this.check, this.back, this.next],
    );
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.answer();
    });
    this.verdict = el("div", { role: "status", class: "hv-judged" });
    this.root = el(
      "section",
      { class: "hv-lesson", "aria-label": "questions" },
      el("div", { class: "hv-title" }, el("b", { class: "hv-model" }, course.title), ...this.marks, this.progress, this.name, this.save),
      this.question,
      this.form,
      this.verdict,
    );
    root.prepend(this.root);
    app.state.onChange(() => this.point());
    this.go(this.place);
  }

  get step() {
    return sure(this.course.steps[this.place]);
  }

  // What is kept

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
    const text = JSON.stringify(sheet(this.course, this.name.value, this.answers), null, 1);
    const who = this.name.value.trim().replace(/[^\p{L}\p{N}]+/gu, "-") || "answers";
    download(new Blob([text], { type: "application/json" }), `${who}.json`);
  }

  // One question

  /** @param {number} place */
  go(place) {
    this.place = Math.min(Math.max(place, 0), this.course.steps.length - 1);
    const { step } = this;
    setText(this.question, `${this.place + 1}. ${step.question}`);
    if (step.state) this.app.state.set(step.state);
    visible(this.field, step.kind !== "view" && !step.choices.length);
    visible(this.menu, step.choices.length > 0);
    visible(this.chosen, step.kind === "view");
    setAttribute(this.field, "inputmode", step.kind === "number" ? "decimal" : null);
    setText(this.check, step.kind === "open" ? "keep" : "check");
    const given = this.answers[this.place]?.given ?? "";
    this.menu.replaceChildren(...["", ...step.choices].map((text) => el("option", { value: text }, text)));
    if (step.kind !== "view") {
      this.field.value = String(given);
      this.menu.value = String(given);
    }
    this.back.disabled = this.place === 0;
    this.next.disabled = this.place === this.course.steps.length - 1;
    this.show();
    this.point();
    this.keep();
  }

  /** Say what would be the answer if it were checked now. */
  point() {
    if (this.step.kind !== "view") return;
    const now = Object.entries(pointedAt(this.step, this.app.settings));
    setText(this.chosen, `your answer: ${now.map(([name, value]) => `${name} ${value ?? "none"}`).join(", ")} (move the view to change it)`);
  }

  answer() {
    const { step } = this;
    const written = step.choices.length ? this.menu.value : this.field.value;
    if (step.kind !== "view" && !written.trim()) return;
    const given = step.kind === "view" ? pointedAt(step, this.app.settings) : written;
    this.answers[this.place] = tried(step, this.answers[this.place], given);
    this.show(given);
    this.keep();
  }

  /**
   * The verdict on this question, and the marks of all.
   * @param {any} [given] The answer of now: after a right one another may be tried.
   */
  show(given) {
    const { steps } = this.course;
    const answer = this.answers[this.place];
    const right = given !== undefined && answer?.right ? judged(this.step, given) : answer?.right;
    const words = right ? "✓ right" : right === null ? "kept" : "✗ not yet";
    setText(this.verdict, answer ? words : "");
    if (answer && right === false && this.step.hint) this.verdict.append(el("span", { class: "hv-hint" }, this.step.hint));
    setAttribute(this.verdict, "data-right", answer ? String(right) : null);
    for (const [number, button] of this.marks.entries()) {
      const of = this.answers[number];
      setAttribute(button, "aria-current", number === this.place ? "step" : null);
      setAttribute(button, "data-right", of ? String(of.right) : null);
      const told = of ? (of.right ? "right" : of.right === null ? "kept" : "not yet") : "open";
      setAttribute(button, "aria-label", `question ${number + 1}, ${told}`);
    }
    const done = steps.filter((_, number) => this.answers[number]?.right).length;
    const all = steps.filter((step) => step.kind !== "open").length;
    setText(this.progress, `${done} of ${all} right`);
  }
}
