// Channels go off, one after another, until the prediction changes: with the curve, and a stop.

import { el, setAttribute, setText, visible } from "./dom.ts";
import { contextOf } from "./levels.ts";
import { percent } from "./numbers.ts";
import type { Source } from "./source.ts";
import type { State } from "./state.ts";

/** What has come of it. */
export interface Part {
  share: number;
  curve: number[];
  answer: string;
  flipped: string | null;
  channels: number[];
  none?: string;
}
export interface Work {
  layer: string;
  count: number;
}

const FLIP_WIDE = 240; // of the curve, in pixels of the canvas
const FLIP_HIGH = 44;

/** A button, and what has come of it. */
export class Flip {
  work: Work | null = null;
  run: number;
  edits = false; // whether an edit of its own is on its way
  button: HTMLButtonElement;
  words = el("span", { class: "hv-dim", role: "status" });
  drawing = el("canvas", { width: FLIP_WIDE, height: FLIP_HIGH, "aria-hidden": "true" });
  curve: HTMLSpanElement;
  root: HTMLSpanElement;

  /** @param order The channels as they are on the screen. */
  constructor(public source: Source, public state: State, public order: () => ArrayLike<number>) {
    const what =
      "switch channels off in this order until the prediction changes, then switch those that are not needed on again";
    this.run = source.facts.run;
    this.button = el("button", { class: "hv-toggle", type: "button", title: what });
    this.curve = el("span", { class: "hv-curve", role: "img", hidden: true }, this.drawing);
    this.root = el("span", { class: "hv-flip" }, this.button, this.curve, this.words);
    this.button.addEventListener(
      "click",
      () => (this.work ? this.stop("stopped: nothing is switched off") : this.begin()),
    );
    state.onChange((changed) => {
      if (!changed.has("layer") && !changed.has("sample")) return;
      if (this.work) this.stop("");
      else this.say("", null);
    });
    source.listeners.add(() => this.follow());
    this.show();
  }

  /** What was found describes one run and the edit that it led to; it goes with the next run. */
  follow() {
    const { run } = this.source.facts;
    if (run === this.run) return;
    this.run = run;
    if (this.edits) this.edits = false;
    else if (!this.work) this.say("", null);
  }

  begin() {
    const channels = Array.from(this.order());
    const { layer } = this.state.values;
    const work = { layer, count: channels.length };
    this.work = work;
    this.say("", null);
    const at = { ...this.state.values };
    const step = () =>
      this.source.flip?.(at, channels, (part) => {
        if (this.work !== work) return; // stopped, or overtaken
        if (!part) return this.stop("stopped: the network has changed");
        if (part.none) return this.stop(part.none);
        if (part.share === 1) return this.end(work, part);
        this.say(`${part.curve.length - 1} of ${work.count} off, ${nowOf(part)}`, part.curve);
        return step();
      });
    step();
    this.show();
  }

  stop(why: string) {
    this.work = null;
    this.say(why, null);
    this.show();
  }

  end(work: Work, part: Part) {
    this.work = null;
    const tried = part.curve.length - 1;
    const all = `The prediction stays ${part.answer}, ${
      percent(Number(part.curve.at(-1)))
    }, with all ${tried} channels off`;
    const enough = part.channels.length;
    const few = `Prediction flips to ${part.flipped} after ${tried} channel${
      tried === 1 ? "" : "s"
    }; ${
      enough === 1 ? `channel ${part.channels[0]} alone is enough` : `${enough} of them are enough`
    }`;
    this.say(part.flipped === null ? all : few, part.curve);
    this.show();
    this.edits = part.flipped !== null;
    if (this.edits) this.source.edit({ set: "off", layer: work.layer, channels: part.channels });
  }

  /** @param curve The prediction's probability by the number of channels off. */
  say(words: string, curve: number[] | null) {
    setText(this.words, words);
    visible(this.curve, Boolean(curve));
    if (!curve) return;
    const context = contextOf(this.drawing);
    context.clearRect(0, 0, FLIP_WIDE, FLIP_HIGH);
    context.strokeStyle = getComputedStyle(this.drawing).color;
    context.lineWidth = 3;
    context.beginPath();
    const last = Math.max(curve.length - 1, 1);
    for (const [off, share] of curve.entries()) {
      context.lineTo(((FLIP_WIDE - 4) * off) / last + 2, FLIP_HIGH - 2 - (FLIP_HIGH - 4) * share);
    }
    context.stroke();
    const said = `the prediction's probability: ${
      curve.map((share, off) => `${off} off ${percent(share)}`).join(", ")
    }`;
    setAttribute(this.curve, "aria-label", said);
    setAttribute(this.curve, "title", said);
  }

  show() {
    setText(this.button, this.work ? "stop" : "find channels that change the prediction");
    visible(this.root, Boolean(this.source.flip) && this.source.facts.predictions.length > 1);
  }
}

function nowOf(part: Part) {
  return part.flipped === null
    ? `${part.answer} ${percent(Number(part.curve.at(-1)))}`
    : `${part.flipped}: which of them are needed? ${part.channels.length} so far`;
}
