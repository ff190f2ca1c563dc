// The questions of a guided page, above the view that answers them; progress is kept in the browser.

import { render } from "preact";
import { inWords, judged, numberOf, pointedAt, restored, sheet, tried } from "./answers.ts";
import { Menu } from "./controls.tsx";
import { download, el } from "./dom.ts";
import type { App } from "./app.ts";
import type { Answer, Course } from "./answers.ts";

/** One question at a time. */
export class Lesson {
  key: string;
  name: string;
  place: number;
  answers: (Answer | undefined)[];
  drafts: (string | undefined)[]; // the text of each question's field, checked or not
  checked: unknown = undefined; // the answer that the verdict is about
  message = ""; // in place of a verdict
  isDeleting = false; // whether the next click deletes all answers
  nameField!: HTMLInputElement;
  root = el("section", { class: "hv-lesson", "aria-label": "questions" });

  /**
   * @param app The view.
   * @param root Of the view; the questions stand at its top.
   * @param isLinked Whether the address names the view, which stays instead of the question's.
   */
  constructor(public course: Course, public app: App, root: HTMLElement, isLinked: boolean) {
    this.key = `hookviz ${course.id}`;
    const { name, place, answers, drafts } = restored(this.stored(), course);
    [this.name, this.place, this.answers, this.drafts] = [name, place, answers, drafts];
    root.prepend(this.root);
    app.state.onChange(() => this.draw());
    app.source.listeners.add(() => this.draw()); // what is switched off, the predictions
    if (isLinked) this.ask(place);
    else this.go(place);
  }

  get step() {
    return this.course.steps[this.place];
  }

  /** The part of the view that the question is about. */
  get pointed() {
    return pointedAt(this.step, this.app.settings, this.app.source.facts);
  }

  /** The text of the question's field. */
  get written() {
    return this.drafts[this.place] ?? String(this.answers[this.place]?.given ?? "");
  }

  /** The present answer: the written one, or what the view shows. */
  get given(): unknown {
    return this.step.kind === "view" ? this.pointed : this.written;
  }

  /** A verdict stays only as long as the answer that was checked. */
  get isChecked() {
    return JSON.stringify(this.given) === JSON.stringify(this.checked);
  }

  stored() {
    try {
      return localStorage.getItem(this.key);
    } catch {
      return null; // a frame without storage: progress is lost when the page is closed
    }
  }

  /** Store the progress, and draw. */
  set(changes: Partial<Lesson>) {
    const { name, place, answers, drafts } = Object.assign(this, changes);
    try {
      localStorage.setItem(this.key, JSON.stringify({ name, place, answers, drafts }));
    } catch {
      // as above
    }
    this.draw();
  }

  handIn() {
    const name = this.name.trim();
    if (!name) {
      this.nameField.focus();
      return this.set({ message: "Write your name first." });
    }
    const text = JSON.stringify(sheet(this.course, name, this.answers, this.drafts), null, 1);
    const file = `${name.replace(/[^\p{L}\p{N}]+/gu, "-")}.json`;
    download(new Blob([text], { type: "application/json" }), file);
    return this.set({ message: `Saved as ${file}: hand in this file.` });
  }

  /** The second click in a row deletes everything: browsers block dialogs in frames. */
  startAgain() {
    if (!this.isDeleting) return this.set({ isDeleting: true });
    this.set({ isDeleting: false, name: "", answers: [], drafts: [] });
    return this.go(0);
  }

  /** Show a question, and the view at which it begins. */
  go(place: number) {
    const { app, course } = this;
    app.source.restart?.(); // the page's target and picture, no edits
    app.goTo(course.steps[place].state);
    app.state.fit();
    app.history.clear();
    this.ask(place);
  }

  /** Show a question above the present view. */
  ask(place: number) {
    this.set({ place, checked: this.answers[place]?.given, message: "" });
  }

  write(text: string) {
    this.drafts[this.place] = text;
    this.set({ message: "" });
  }

  answer() {
    const { step, written, place, given } = this;
    if (step.kind !== "view" && !written.trim()) {
      return this.set({ message: "Choose or write an answer first." });
    }
    if (step.kind === "number" && Number.isNaN(numberOf(written))) {
      return this.set({ message: "Write a number, such as 0.25." });
    }
    this.answers[place] = tried(step, this.answers[place], given);
    this.set({ checked: given, message: "" });
  }

  draw() {
    render(<LessonView lesson={this} />, this.root);
  }
}

function LessonView({ lesson }: { lesson: Lesson }) {
  const { course: { title, steps }, step, place, answers, message } = lesson;
  const done = steps.filter((_, number) => answers[number]?.right).length;
  const all = steps.filter(({ kind }) => kind !== "open").length;
  const answer = answers[place];
  const right = lesson.isChecked ? judged(step, lesson.given) : undefined;
  const verdict = right ? "✓ right" : right === null ? "answered" : "✗ not right, try again";
  const words = message || (right === undefined ? "" : verdict);
  // A question that was answered keeps its explanation while the view is explored.
  const hint = right === false ? step.hint : answer && answer.right !== false && step.explanation;
  return (
    <>
      <div class="hv-title">
        <b class="hv-model">{title}</b>
        {steps.map((_, number) => <Mark key={number} lesson={lesson} number={number} />)}
        <span class="hv-dim">{`${done} of ${all} right`}</span>
        <input
          ref={(field) => {
            if (field) lesson.nameField = field;
          }}
          type="text"
          placeholder="your name"
          aria-label="your name"
          value={lesson.name}
          onInput={(event) => lesson.set({ name: event.currentTarget.value, message: "" })}
        />
        <button
          type="button"
          title="save a file with all answers, to hand in"
          onClick={() => lesson.handIn()}
        >
          save answers
        </button>
        <button
          type="button"
          title="delete name and answers, for the next student"
          onClick={() => lesson.startAgain()}
          onBlur={() => lesson.set({ isDeleting: false })}
        >
          {lesson.isDeleting ? "delete all answers?" : "start again"}
        </button>
      </div>
      <h2 class="hv-question">{`${place + 1}. ${step.question}`}</h2>
      <form
        class="hv-answer"
        onSubmit={(event) => {
          event.preventDefault();
          lesson.answer();
        }}
      >
        <Field lesson={lesson} />
        <button type="submit" class="hv-check">{step.kind === "open" ? "answer" : "check"}</button>
        <Turn lesson={lesson} by={-1}>back</Turn>
        <Turn lesson={lesson} by={1}>next</Turn>
      </form>
      <div class="hv-judged" role="status" data-right={message ? undefined : right}>
        {words}
        {!message && hint && <span class="hv-hint">{hint}</span>}
      </div>
    </>
  );
}

/** The button to the next or previous question; where there is none it still keeps the focus. */
function Turn({ lesson, by, children }: { lesson: Lesson; by: number; children: string }) {
  const to = lesson.place + by;
  const exists = to in lesson.course.steps;
  return (
    <button
      type="button"
      aria-disabled={exists ? undefined : "true"}
      onClick={() => exists && lesson.go(to)}
    >
      {children}
    </button>
  );
}

/** The button of a question, with its verdict. */
function Mark({ lesson, number }: { lesson: Lesson; number: number }) {
  const answer = lesson.answers[number];
  const verdict = !answer
    ? "not answered"
    : answer.right
    ? "right"
    : answer.right === null
    ? "answered"
    : "not right";
  return (
    <button
      type="button"
      class="hv-step"
      data-right={answer && String(answer.right)}
      aria-current={number === lesson.place ? "step" : undefined}
      aria-label={`question ${number + 1}, ${verdict}`}
      onClick={() => lesson.go(number)}
    >
      {number + 1}
    </button>
  );
}

/** Where the answer is given: a menu, a text field, or the view. */
function Field({ lesson }: { lesson: Lesson }) {
  const { step: { kind, choices }, written } = lesson;
  const label = "your answer";
  const write = (text: string) => lesson.write(text);
  if (kind === "view") {
    const now = `${label}: ${
      inWords(lesson.pointed, lesson.app.facts.classes)
    } (it changes with the view)`;
    return <span class="hv-dim">{now}</span>;
  }
  if (choices.length) {
    const options = ["", ...choices].map((text): [string, string] => [text, text]);
    return <Menu label={label} options={options} value={written} onChoose={write} />;
  }
  if (kind === "open") {
    return (
      <textarea
        rows={3}
        aria-label={label}
        value={written}
        onInput={(event) => write(event.currentTarget.value)}
        // Letters and arrows are the field's own.
        onKeyDown={(event) => event.stopPropagation()}
      />
    );
  }
  return (
    <input
      type="text"
      aria-label={label}
      autocomplete="off"
      inputMode={kind === "number" ? "decimal" : undefined}
      value={written}
      onInput={(event) => write(event.currentTarget.value)}
    />
  );
}
