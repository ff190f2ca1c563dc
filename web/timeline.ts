// Events in a row, a tick for each, taller for a deeper module; a click or a drag goes there.

import { el, setAttribute, shareOf } from "./dom.ts";
import { contextOf } from "./levels.ts";

const WIDEST = 18; // pixels that a tick and its gap take at most
const FAINT = 0.16; // what a filter leaves out

/** What is drawn: "forward", "backward" or "unfired". */
interface Tick {
  side: string;
  depth: number;
}

/** A slider over events; `onGo` gets the place under the pointer. */
export class Timeline {
  deepest: number;
  found: Set<number> | null = null;
  canvas = el("canvas", { "aria-hidden": "true" });
  here = el("div", { class: "hv-now", "aria-hidden": "true" });
  root: HTMLDivElement;

  /** @param words What an event is called. */
  constructor(
    public ticks: Tick[],
    onGo: (place: number) => void,
    public words: (place: number) => string,
  ) {
    this.deepest = ticks.reduce((most, each) => Math.max(most, each.depth), 0);
    this.root = el(
      "div",
      {
        class: "hv-timeline",
        role: "slider",
        tabindex: "0",
        "aria-label": "event",
        "aria-valuemin": "0",
        "aria-valuemax": String(ticks.length - 1),
      },
      this.canvas,
      this.here,
    );
    this.root.style.maxWidth = `${WIDEST * ticks.length}px`;
    this.listen(onGo);
    new ResizeObserver(() => this.draw()).observe(this.root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  listen(onGo: (place: number) => void) {
    let held = false;
    const place = (event: PointerEvent) => {
      const at = Math.floor(shareOf(event, this.root).x * this.ticks.length);
      return Math.min(Math.max(at, 0), this.ticks.length - 1);
    };
    this.root.addEventListener("pointerdown", (event: PointerEvent) => {
      if (event.button) return;
      this.root.setPointerCapture(event.pointerId);
      held = true;
      onGo(place(event));
    });
    this.root.addEventListener("pointermove", (event: PointerEvent) => {
      if (held) onGo(place(event));
      else setAttribute(this.root, "title", this.words(place(event)));
    });
    for (const over of ["pointerup", "pointercancel"]) {
      this.root.addEventListener(over, () => (held = false));
    }
  }

  show(place: number) {
    this.here.style.left = `${(100 * (place + 0.5)) / this.ticks.length}%`;
    setAttribute(this.root, "aria-valuenow", place);
    setAttribute(this.root, "aria-valuetext", this.words(place));
  }

  /** @param found Which events are not faint. */
  only(found: Set<number>) {
    this.found = found;
    this.draw();
  }

  draw() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const sharp = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * sharp);
    this.canvas.height = Math.round(height * sharp);
    const context = contextOf(this.canvas);
    const style = getComputedStyle(this.root);
    const wide = this.canvas.width / this.ticks.length;
    const gap = wide >= 3 * sharp ? Math.max(sharp, Math.round(0.15 * wide)) : 0;
    this.ticks.forEach(({ side, depth }, place) => {
      const high = (this.canvas.height * (depth + 1)) / (this.deepest + 1);
      context.fillStyle = style.getPropertyValue(`--hv-${side}`);
      context.globalAlpha = !this.found || this.found.has(place) ? 1 : FAINT;
      const left = Math.floor(place * wide); // whole pixels: halves would shimmer
      const right = Math.max(Math.floor((place + 1) * wide) - gap, left + 1);
      context.fillRect(left, this.canvas.height - high, right - left, high);
    });
  }
}
