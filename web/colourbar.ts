// The colours from low to high; a drag, or a number that is typed, chooses what they span.

import { el, setAttribute, shareOf } from "./dom.ts";
import { COLOURS, paint, toLevels } from "./levels.ts";
import { short } from "./numbers.ts";
import type { Ends } from "./state.ts";

/** A colourbar; `onChoose` gets the chosen ends, or null for the range's own. */
export class Colourbar {
  canvas = el("canvas", { width: COLOURS, height: 1, "aria-hidden": "true" });
  track: HTMLDivElement;
  low: HTMLInputElement;
  high: HTMLInputElement;
  middle = el("span", { class: "hv-middle" });
  ends: HTMLDivElement;
  root: HTMLDivElement;
  whole: Ends = { low: 0, high: 1 };
  shown: Ends;
  drawn = "";

  /** @param onChoose Null: it cannot be changed. */
  constructor(name: string, public onChoose: ((ends: Ends | null) => void) | null) {
    this.track = el("div", { class: "hv-bar" }, this.canvas);
    this.low = this.field(`least value of the colours of the ${name}`);
    this.high = this.field(`largest value of the colours of the ${name}`);
    this.ends = el("div", { class: "hv-ends" }, this.low, this.middle, this.high);
    this.root = el("div", { class: "hv-scale" }, this.track, this.ends);
    this.shown = this.whole;
    for (const end of [this.low, this.high]) end.readOnly = !onChoose;
    if (onChoose) this.listen(onChoose);
  }

  field(label: string) {
    return el("input", { class: "hv-end", "aria-label": label, size: 8, inputmode: "decimal" });
  }

  /**
   * @param whole What the range says.
   * @param key Of the palette.
   * @param robust Where the colours end by themselves, if not at the whole's ends.
   */
  show(
    whole: Ends,
    chosen: Ends | null,
    palette: Uint32Array,
    key: string,
    robust: Ends | null = null,
  ) {
    this.whole = whole;
    const ends = (this.shown = chosen ?? robust ?? whole);
    const now = `${whole.low} ${whole.high} ${ends.low} ${ends.high} ${key}`;
    if (now === this.drawn) return;
    this.drawn = now;
    // All values of the range from left to right, each in its colour.
    const step = (whole.high - whole.low) / COLOURS;
    const values = Float64Array.from({ length: COLOURS }, (_, i) => whole.low + (i + 0.5) * step);
    const levels = toLevels(values, { ...ends, precision: "double" });
    paint(this.canvas, levels, COLOURS, 1, palette);
    for (const [field, value] of [[this.low, ends.low], [this.high, ends.high]] as const) {
      field.value = short(value);
      setAttribute(field, "title", String(value));
    }
    this.root.classList.toggle("hv-chosen", Boolean(chosen));
    this.root.style.setProperty(
      "--end",
      `${Math.max(this.low.value.length, this.high.value.length) + 1}ch`,
    );
  }

  listen(onChoose: (ends: Ends | null) => void) {
    const { track } = this;
    setAttribute(track, "title", "drag to choose what the colours span; double-click for all");
    let from: number | null = null;
    const value = (event: PointerEvent) => {
      const share = Math.min(Math.max(shareOf(event, track).x, 0), 1);
      return this.whole.low + share * (this.whole.high - this.whole.low);
    };
    track.addEventListener("pointerdown", (event: PointerEvent) => {
      track.setPointerCapture(event.pointerId);
      from = value(event);
      event.preventDefault();
    });
    track.addEventListener("pointermove", (event: PointerEvent) => {
      if (from === null) return;
      const to = value(event);
      const size = Math.abs(to - from) / (this.whole.high - this.whole.low);
      if (size > 0.01) onChoose({ low: Math.min(from, to), high: Math.max(from, to) });
    });
    for (const over of ["pointerup", "pointercancel"]) {
      track.addEventListener(over, () => (from = null));
    }
    track.addEventListener("dblclick", () => onChoose(null));
    for (const field of [this.low, this.high]) {
      field.addEventListener("change", () => {
        const typed = Number(field.value.replace(/[−]/g, "-"));
        const ends = { ...this.shown, [field === this.low ? "low" : "high"]: typed };
        const good = field.value.trim() && ends.low < ends.high;
        this.drawn = "";
        onChoose(good ? ends : null);
        if (!good) this.show(this.whole, null, new Uint32Array(256), "");
      });
    }
  }
}
