// The order that has to be worked out: how far, a stop, and why it is old or missing.

import { el, setText, visible } from "./dom.ts";
import type { Layer } from "./layer.ts";
import type { Source } from "./source.ts";
import type { State } from "./state.ts";

/** What has come of it. */
export interface Part {
  share: number;
  order: ArrayLike<number> | null;
  none: string;
}
export interface Work {
  layer: string;
  sample: number;
  share: number;
  moved: boolean;
}

/** A word and a button beside the order's menu; while it works all others go on. */
export class Ablation {
  work: Work | null = null;
  said = "";
  words = el("span", { class: "hv-dim", role: "status" });
  button = el("button", { class: "hv-toggle", type: "button" });
  root: HTMLSpanElement;

  /**
   * @param root Where a hand may be meanwhile.
   * @param again A new drawing.
   */
  constructor(
    root: HTMLElement,
    public source: Source,
    public state: State,
    public again: () => void,
  ) {
    this.root = el("span", { class: "hv-ablation" }, this.words, this.button);
    this.button.addEventListener("click", () => (this.work ? this.stop("stopped") : this.begin()));
    const touched = () => {
      if (this.work) this.work.moved = true;
    };
    root.addEventListener("pointerdown", touched);
    state.onChange((changed) => {
      if (changed.has("channel") || changed.has("shown_run")) touched();
      if (changed.has("layer") || changed.has("order")) this.said = "";
      if (this.work && (changed.has("layer") || changed.has("sample"))) this.stop("");
    });
  }

  /** The model runs once for every channel, a few at a time. */
  begin() {
    const { layer, sample } = this.state.values;
    this.said = "";
    const work = { layer, sample, share: 0, moved: false };
    this.work = work;
    this.step(work);
  }

  step(work: Work) {
    this.source.ablate(this.state.values, (part) => {
      if (this.work !== work) return; // stopped, or overtaken
      if (!part) this.stop("stopped: the network has changed");
      else if (part.none) this.stop(part.none);
      else if (part.order) this.end(work, part.order);
      else {
        work.share = part.share;
        this.step(work);
      }
      this.again();
    });
    this.again();
  }

  stop(why: string) {
    this.work = null;
    this.said = why;
    this.again();
  }

  /** Whoever has done something meanwhile stays where they are. */
  end(work: Work, order: ArrayLike<number>) {
    this.work = null;
    const first = work.moved ? {} : { channel: order[0] };
    this.state.set({ order: "score drop", shown_run: this.edited, ...first });
  }

  /** It is of the edited run, or of the difference. */
  get edited() {
    const { shown_run: run } = this.state.values;
    return run === "original" ? "edited" : run;
  }

  show(data: Layer) {
    const { order } = this.state.values;
    const [words, button] = this.work
      ? [`${Math.round(100 * this.work.share)} % switched off`, "stop"]
      : this.standing(data, order);
    visible(this.root, Boolean(words));
    setText(this.words, words);
    setText(this.button, button);
    visible(this.button, this.source.live);
  }

  standing(data: Layer, order: string): [string, string] {
    if (this.said) return [this.said, "again"];
    if (order !== "score drop") return ["", ""];
    if (!data.arrays.ablation_scores) {
      return ["by channel number: not computed for this layer", "compute"];
    }
    return ["", ""];
  }
}
