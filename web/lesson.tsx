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
  written = "";
  given: unknown = undefined; // the answer that was checked last: after a right one another may be tried
  message = ""; // in place of a verdict
  isDeleting = false; // whether the next click deletes all answers
  nameField!: HTMLInputElement;
  root = el("section", { class: "hv-lesson", "aria-label": "questions" });

  /**
   * @param app The view.
   * @param root Of the view; the questions stand at its top.
   */
  constructor(public course: Course, public app: App, root: HTMLElement) {
    this.key = `hookviz ${course.id}`;
    ({ name: this.name, place: this.place, answers: this.answers } = restored(
      this.stored(),
      course,
    ));
    root.prepend(this.root);
    app.state.onChange(() => this.draw());
    app.source.listeners.add(() => this.draw()); // what is switched off, the predictions
    this.go(this.place);
  }

  get step() {
    return this.course.steps[this.place];
  }

  /** The part of the view that the question is about. */
  get pointed() {
    return pointedAt(this.step, this.app.settings, this.app.source.facts);
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
    const { name, place, answers } = Object.assign(this, changes);
    try {
      localStorage.setItem(this.key, JSON.stringify({ name, place, answers }));
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
    const text = JSON.stringify(sheet(this.course, name, this.answers), null, 1);
    const file = `${name.replace(/[^\p{L}\p{N}]+/gu, "-")}.json`;
    download(new Blob([text], { type: "application/json" }), file);
    return this.set({ message: `Saved as ${file}: hand in this file.` });
  }

  /** The second click in a row deletes everything: browsers block dialogs in frames. */
  startAgain() {
    if (!this.isDeleting) return this.set({ isDeleting: true });
    this.set({ isDeleting: false, name: "", answers: [] });
    return this.go(0);
  }

  go(place: number) {
    this.place = Math.min(Math.max(place, 0), this.course.steps.length - 1);
    const { step } = this;
    this.app.source.restart?.(); // the page's target and picture, no edits
    this.app.goTo(step.state);
    this.app.state.fit();
    const before = step.kind === "view" ? "" : this.answers[this.place]?.given;
    this.set({ written: String(before ?? ""), given: undefined, message: "" });
  }

  answer() {
    const { step, written, place } = this;
    const given = step.kind === "view" ? this.pointed : written;
    if (step.kind !== "view" && !written.trim()) return;
    if (step.kind === "number" && Number.isNaN(numberOf(written))) {
      return this.set({ message: "Write a number, such as 0.25." });
    }
    this.answers[place] = tried(step, this.answers[place], given);
    this.set({ given, message: "" });
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
  const right = lesson.given !== undefined && answer?.right
    ? judged(step, lesson.given)
    : answer?.right;
  const words = right ? "✓ right" : right === null ? "answered" : "✗ not right, try again";
  const isJudged = answer && !message;
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
        <button type="button" disabled={!place} onClick={() => lesson.go(place - 1)}>back</button>
        <button
          type="button"
          disabled={place === steps.length - 1}
          onClick={() => lesson.go(place + 1)}
        >
          next
        </button>
      </form>
      <div class="hv-judged" role="status" data-right={isJudged ? right : undefined}>
        {isJudged ? words : message}
        {isJudged && <span class="hv-hint">{right === false ? step.hint : step.explanation}</span>}
      </div>
    </>
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
  const write = (written: string) => lesson.set({ written });
  if (kind === "view") {
    const now = `${label}: ${inWords(lesson.pointed)} (it changes with the view)`;
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
