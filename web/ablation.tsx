// The order that has to be worked out: how far, a stop, and why it is old or missing.

import { Toggle } from "./controls.tsx";
import type { App } from "./app.ts";
import type { Layer } from "./layer.ts";

/** A step of the work. */
export interface Part {
  share?: number;
  order: ArrayLike<number> | null;
  none?: string | null;
}
interface Work {
  layer: string;
  sample: number;
  share: number;
  moved: boolean;
}

/** The work; the explorer can be used meanwhile. */
export class Ablation {
  work: Work | null = null;
  words = ""; // why it was stopped

  constructor(public app: App) {
    const touched = () => {
      if (this.work) this.work.moved = true;
    };
    app.root.addEventListener("pointerdown", touched);
    app.state.onChange((changed) => {
      if (changed.has("channel") || changed.has("shown_run")) touched();
      if (changed.has("layer") || changed.has("order")) this.words = "";
      if (this.work && (changed.has("layer") || changed.has("sample"))) this.stop("");
    });
  }

  /** The model runs once for every channel, a few at a time. */
  begin() {
    const { layer, sample } = this.app.at;
    this.words = "";
    this.work = { layer, sample, share: 0, moved: false };
    this.step(this.work);
  }

  step(work: Work) {
    this.app.source.ablate(this.app.at, (part) => {
      if (this.work !== work) return; // stopped, or overtaken
      if (!part) this.stop("stopped: the run has changed");
      else if (part.none) this.stop(part.none);
      else if (part.order) this.end(work, part.order);
      else {
        work.share = part.share!;
        this.step(work);
      }
      this.app.schedule();
    });
    this.app.schedule();
  }

  stop(why: string) {
    this.work = null;
    this.words = why;
    this.app.schedule();
  }

  /** Whoever has moved on meanwhile stays there. The order is of the edited run, or of the difference. */
  end({ moved }: Work, order: ArrayLike<number>) {
    this.work = null;
    const { shown_run: run } = this.app.at;
    this.app.state.set({
      order: "score drop",
      shown_run: run === "original" ? "edited" : run,
      ...(moved ? {} : { channel: order[0] }),
    });
  }

  toggle() {
    if (this.work) this.stop("stopped");
    else this.begin();
  }
}

export function AblationView({ ablation, data }: { ablation: Ablation; data?: Layer }) {
  const { work, app } = ablation;
  const isMissing = app.at.order === "score drop" && data && !data.arrays.ablation_scores;
  const [words, button] = work
    ? [`${Math.round(100 * work.share)} % switched off`, "stop"]
    : ablation.words
    ? [ablation.words, "again"]
    : isMissing
    ? ["by channel number: not computed for this layer", "compute"]
    : ["", ""];
  const onToggle = app.source.live ? () => ablation.toggle() : undefined;
  return <Progress words={words} button={button} onToggle={onToggle} />;
}

/** How far some work is, and a button that stops it or goes on. */
export function Progress({ words, button, onToggle }: {
  words: string;
  button: string;
  onToggle?: () => void;
}) {
  return (
    <span class="hv-ablation" hidden={!words}>
      <span class="hv-dim" role="status">{words}</span>
      {onToggle && <Toggle onClick={onToggle}>{button}</Toggle>}
    </span>
  );
}
