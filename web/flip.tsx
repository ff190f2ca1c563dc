// Channels go off, one after another, until the prediction changes: with the curve, and a stop.

import { Toggle } from "./controls.tsx";
import { percent } from "./numbers.ts";
import type { App } from "./app.ts";
import type { FlipAnswer } from "./messages.d.ts";

/** A step of the search, or only why there is none. */
export type Part =
  & Pick<FlipAnswer, "share" | "answer" | "flipped" | "channels" | "none">
  & { curve: number[] };
interface Work {
  layer: string;
  count: number;
}

/** The search, and its result. */
export class Flip {
  work: Work | null = null;
  run: number;
  edits = false; // whether an edit of its own is on its way
  words = "";
  curve: number[] | null = null; // the prediction's probability by the number of channels off

  constructor(public app: App) {
    this.run = app.facts.run;
    app.state.onChange((changed) => {
      if (changed.has("layer") || changed.has("sample")) this.stop("");
    });
  }

  /** A result describes one run and the edit that it led to; it goes with the next run. */
  follow() {
    const { run } = this.app.facts;
    if (run === this.run) return;
    this.run = run;
    if (this.edits) this.edits = false;
    else if (!this.work) [this.words, this.curve] = ["", null]; // a drawing is under way
  }

  toggle() {
    if (this.work) this.stop("stopped: nothing is switched off");
    else this.begin();
  }

  begin() {
    const { source, ranking, at } = this.app;
    const channels = ranking.name === "index" ? [] : Array.from(ranking.order);
    const work = { layer: at.layer, count: ranking.order.length };
    this.work = work;
    this.say("");
    const step = () =>
      source.flip?.(at, channels, (part) => {
        if (this.work !== work) return; // stopped, or overtaken
        if (!part) return this.stop("stopped: the run has changed");
        if (part.none) return this.stop(part.none);
        if (part.share === 1) return this.end(work, part);
        this.say(`${part.curve.length - 1} of ${work.count} off, ${nowOf(part)}`, part.curve);
        return step();
      });
    step();
  }

  stop(why: string) {
    this.work = null;
    this.say(why);
  }

  end({ layer }: Work, { curve, channels, flipped, answer }: Part) {
    this.work = null;
    const tried = curve.length - 1;
    const enough = channels.length === 1
      ? `channel ${channels[0]} alone is enough`
      : `${channels.length} of them are enough`;
    this.say(
      flipped === null
        ? `The prediction stays ${answer}, ${
          percent(Number(curve.at(-1)))
        }, with all ${tried} channels off`
        : `Prediction flips to ${flipped} after ${tried} channel${
          tried === 1 ? "" : "s"
        }; ${enough}`,
      curve,
    );
    this.edits = flipped !== null;
    if (this.edits) this.app.source.edit({ set: "off", layer, channels });
  }

  say(words: string, curve: number[] | null = null) {
    [this.words, this.curve] = [words, curve];
    this.app.schedule();
  }
}

export function FlipView({ flip }: { flip: Flip }) {
  const { work, words, curve, app: { source } } = flip;
  return (
    <span class="hv-flip" hidden={!source.flip || source.facts.predictions.length < 2}>
      <Toggle
        title="switch channels off in the shown order (by contribution if sorted by number) until the prediction changes; then restore those that are not needed"
        onClick={() => flip.toggle()}
      >
        {work ? "stop" : "find channels that change the prediction"}
      </Toggle>
      {curve && <Curve curve={curve} />}
      <span class="hv-dim" role="status">{words}</span>
    </span>
  );
}

function Curve({ curve }: { curve: number[] }) {
  const last = Math.max(curve.length - 1, 1);
  const points = curve.map((share, off) => Number.isNaN(share) ? "" : `${off / last},${1 - share}`)
    .join(" ");
  const shares = curve.map((share, off) => `${off} off ${percent(share)}`).join(", ");
  const words = `the prediction's probability: ${shares}`;
  return (
    <svg
      class="hv-curve"
      role="img"
      aria-label={words}
      viewBox="0 0 1 1"
      preserveAspectRatio="none"
    >
      <title>{words}</title>
      <polyline points={points} />
    </svg>
  );
}

function nowOf(part: Part) {
  return part.flipped === null
    ? `${part.answer} ${percent(Number(part.curve.at(-1)))}`
    : `${part.flipped}: which of them are needed? ${part.channels.length} so far`;
}
