// The line to the kernel: what is sent, and why nothing comes back.

import type { Kernel, WidgetModel } from "./model.ts";

const LONG = 10000; // milliseconds without an answer until that is said
const GONE =
  "The kernel was restarted or has ended: run the cell again. What was shown before can still be moved.";
const SILENT = "No answer from the kernel for 10 seconds. If it has ended, run the cell again.";
const BUSY = "The kernel is busy: the answer comes when it is free.";
const ENDS = new Set(["restarting", "autorestarting", "starting", "terminating", "dead"]); // a kernel's states
const ENDED = [...ENDS].map((each) => `kernel_${each}.Kernel`).join(" "); // as the classic Notebook calls them
const LATE = 500; // milliseconds by which an answer may come after the kernel is said to be idle

/** The classic Notebook's events. */
interface NotebookEvents {
  on: (names: string, act: () => void) => void;
  off: (names: string, act: () => void) => void;
}

/** Sends to the kernel, and notices when it is busy or has ended. */
export class Connection {
  /** Why nothing new comes; or empty. */
  words = "";
  refused = 0; // how often the gone kernel was asked to do something
  timer = 0;
  heard = 0; // how often the kernel has said something
  kernel: Kernel | undefined;
  /** The classic Notebook tells of it by events. */
  events = (globalThis as { Jupyter?: { notebook?: { events: NotebookEvents } } }).Jupyter?.notebook
    ?.events;
  ended: () => void = () => this.lose(GONE);

  /**
   * @param changed Called after a change of the words.
   * @param over Called when the kernel has ended.
   */
  constructor(public model: WidgetModel, public changed: () => void, public over: () => void) {
    /** The kernel, where the front end shows it. */
    this.kernel = model.widget_manager?.kernel;
    this.kernel?.statusChanged?.connect(this.status, this);
    this.events?.on(ENDED, this.ended);
    model.on("comm:close", this.ended);
    model.on("comm_live_update", () => this.send({ ask: "here", key: "here" })); // to either
  }

  get isOver() {
    return this.words === GONE;
  }

  /**
   * Where no answer comes in a while, that is said; a kernel that was done without one is another.
   */
  send({ bytes, ...said }: Record<string, unknown> & { bytes?: Uint8Array }) {
    const { heard } = this;
    const status = ({ content }: { content: { execution_state: string } }) => {
      if (content.execution_state === "idle") {
        setTimeout(() => this.heard === heard && this.lose(GONE), LATE);
      }
    };
    const jupyter = this.kernel || this.events; // marimo would call what is given as a function
    try {
      this.model.send(
        said,
        jupyter ? { iopub: { status } } : undefined,
        bytes ? [bytes] : undefined,
      );
    } catch {
      this.lose(GONE);
    }
    if (!this.timer) this.wait();
  }

  /** Say after a while that there is no answer yet. */
  wait() {
    this.timer = setTimeout(() => this.lose(this.kernel?.status === "busy" ? BUSY : SILENT), LONG);
  }

  /** The kernel has answered; is another answer on its way? */
  answered(more: boolean) {
    this.heard += 1;
    clearTimeout(this.timer);
    this.timer = 0;
    if (more) this.wait();
    this.words = "";
  }

  /** Another kernel has taken the place of ours, or none; or ours is just busy. */
  status(_: unknown, status: string) {
    if (ENDS.has(status)) this.ended();
    else if (status === "busy" && this.words === SILENT) this.lose(BUSY);
  }

  lose(words: string) {
    if (this.isOver || this.words === words) return;
    this.words = words;
    if (words === GONE) this.over();
    setTimeout(() => this.changed());
  }

  /**
   * Whether the kernel is gone; then that is shown once more, where someone has asked it to do something.
   */
  refuses() {
    if (!this.isOver) return false;
    this.refused += 1;
    this.changed();
    return true;
  }

  /** Nobody listens any more. */
  leave() {
    this.kernel?.statusChanged?.disconnect(this.status, this);
    this.events?.off(ENDED, this.ended);
  }
}
