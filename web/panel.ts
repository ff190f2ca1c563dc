// One picture in its frame: at its own pixels, zoomed and crossed together with all others.

import { el, setAttribute, setText, visible } from "./dom.ts";
import { put } from "./levels.ts";
import type { State } from "./state.ts";

/** A heading, a picture, and room for what stands below it. */
export class Panel {
  canvas = el("canvas", { class: "hv-map", width: 1, height: 1 });
  label = el("span", { class: "hv-label" });
  side = el("span", { class: "hv-dim" });
  head: HTMLDivElement;
  vertical = el("i", { class: "hv-cross hv-vertical" });
  horizontal = el("i", { class: "hv-cross hv-horizontal" });
  cell = el("i", { class: "hv-cell" });
  field = el("i", { class: "hv-cell hv-field", hidden: true });
  words = el("span", { class: "hv-words" });
  frame: HTMLDivElement;
  way = el("button", { class: "hv-toggle hv-way", type: "button" });
  onWay: ((layer: string) => void) | null = null;
  below = el("div", { class: "hv-below" });
  root: HTMLDivElement;
  drawn = "";
  elsewhere = false; // whether positions of the other pictures do not apply here
  onChosen: () => void;
  /** Replaces the choice of a position on a click. */
  onPick: ((u: number, v: number, minus: boolean) => void) | null = null;

  constructor(public state: State, name: string) {
    this.head = el("div", { class: "hv-cap" }, this.label, this.side);
    this.frame = el(
      "div",
      { class: "hv-frame", tabindex: 0, role: "img" },
      this.canvas,
      this.vertical,
      this.horizontal,
      this.cell,
      this.field,
      this.words,
    );
    this.way.hidden = true;
    this.frame.append(this.way);
    this.root = el("div", { class: `hv-panel hv-${name}` }, this.head, this.frame, this.below);
    this.onChosen = () => {}; // a position was chosen here
    this.listen();
  }

  /**
   * Draw if the key has changed.
   * @param key All that the picture depends on.
   */
  draw(key: string, paintIt: () => void) {
    if (key === this.drawn) return;
    this.drawn = key;
    paintIt();
  }

  /** @param side Null: it is left as it is. */
  title(label: string, side: string | null, alt: string) {
    setText(this.label, label);
    setAttribute(this.label, "title", label);
    if (side !== null) setText(this.side, side);
    setAttribute(this.side, "title", side || null);
    this.alt(alt);
  }

  /** @param words What the picture is. */
  alt(words: string) {
    setAttribute(this.frame, "aria-label", words);
  }

  /**
   * Show a text instead of the picture, or over it; an empty text shows the picture alone.
   * @param way A layer that has what is missing here.
   */
  tell(text: string, on: boolean = false, way: string | null = null) {
    setText(this.words, text);
    setText(this.way, way === null ? "" : `go to ${way || "(model)"}`);
    this.way.dataset.layer = way ?? "";
    visible(this.way, way !== null && Boolean(this.onWay));
    this.words.classList.toggle("hv-tag", on && Boolean(text));
    this.canvas.hidden = Boolean(text) && !on;
    if (this.canvas.hidden) {
      for (const line of [this.vertical, this.horizontal]) line.hidden = true;
    }
  }

  /** Follow zoom and crosshair. */
  place() {
    const { k, x, y } = this.state.values.zoom;
    const { spot } = this.state;
    this.canvas.style.transform = k === 1
      ? ""
      : `scale(${k}) translate(${-100 * x}%, ${-100 * y}%)`;
    const seen = spot && !this.canvas.hidden && !this.elsewhere;
    for (const line of [this.vertical, this.horizontal]) line.hidden = !seen;
    if (!spot) return;
    this.vertical.style.left = `${100 * k * (spot.u - x)}%`;
    this.horizontal.style.top = `${100 * k * (spot.v - y)}%`;
  }

  /**
   * Outline a part of the picture; null for none.
   * @param by `cell`, of what belongs to one value of the layer, or `field`.
   */
  outline(
    part: { u: number; v: number; wide: number; high: number } | null,
    by: HTMLElement = this.cell,
  ) {
    by.hidden = !part || this.canvas.hidden; // nothing has a place in words
    if (!part) return;
    const { k, x, y } = this.state.values.zoom;
    const share = (value: number) => `${100 * k * value}%`;
    const style = by.style;
    style.left = share(part.u - part.wide / 2 - x);
    style.top = share(part.v - part.high / 2 - y);
    style.width = share(part.wide);
    style.height = share(part.high);
  }

  /** Pointer and wheel. */
  listen() {
    const { frame, state } = this;
    this.way.addEventListener("click", () => this.onWay?.(this.way.dataset.layer ?? ""));
    for (const name of ["pointerdown", "pointerup", "keydown"]) {
      this.way.addEventListener(name, (event) => event.stopPropagation()); // a press on the button is not on the picture
    }
    let held: { x: number; y: number; zoom: { k: number; x: number; y: number } } | null = null;
    const at = (event: MouseEvent) => {
      const box = frame.getBoundingClientRect();
      const { k, x, y } = state.values.zoom;
      const u = x + (event.clientX - box.left) / box.width / k;
      const v = y + (event.clientY - box.top) / box.height / k;
      return { u: Math.min(Math.max(u, 0), 1), v: Math.min(Math.max(v, 0), 1) };
    };
    frame.addEventListener("pointermove", (event: PointerEvent) => {
      if (held) {
        const box = frame.getBoundingClientRect();
        const { k, x, y } = held.zoom;
        const right = (event.clientX - held.x) / box.width / k;
        const down = (event.clientY - held.y) / box.height / k;
        if (k > 1) state.pan(k, x - right, y - down);
      }
      state.set({ hover: at(event) });
    });
    frame.addEventListener("pointerleave", () => {
      if (!held) state.set({ hover: null });
    });
    frame.addEventListener("pointerdown", (event: PointerEvent) => {
      if (event.button) return;
      held = { x: event.clientX, y: event.clientY, zoom: state.values.zoom };
      frame.setPointerCapture(event.pointerId);
      state.set({ hover: at(event) });
    });
    for (const over of ["pointerup", "pointercancel"]) {
      frame.addEventListener(over as "pointerup" | "pointercancel", (event) => {
        const { u, v } = at(event);
        // A click chooses a place; what was dragged does not.
        if (
          held && over === "pointerup" &&
          Math.hypot(event.clientX - held.x, event.clientY - held.y) < 4
        ) {
          this.onChosen();
          this.onPick ? this.onPick(u, v, event.shiftKey) : state.set({ place: [v, u] });
        }
        held = null;
      });
    }
    frame.addEventListener("dblclick", () => state.fit());
    frame.addEventListener(
      "wheel",
      (event: WheelEvent) => {
        // A page that is scrolled past the pictures goes on scrolling: out of a fitted one, and
        // into one that has not been looked at.
        const near = state.values.zoom.k > 1 || frame.contains(document.activeElement);
        if (!near && !event.ctrlKey) return;
        if (state.values.zoom.k === 1 && event.deltaY > 0) return;
        event.preventDefault();
        const { u, v } = at(event);
        state.zoom(Math.exp(-event.deltaY / 300), u, v);
      },
      { passive: false },
    );
  }
}

/** Draw a picture as it is. */
export function putPicture(
  canvas: HTMLCanvasElement,
  picture: { pixels: Uint8ClampedArray<ArrayBuffer>; width: number; height: number },
) {
  put(canvas, picture.pixels, picture.width, picture.height);
}
