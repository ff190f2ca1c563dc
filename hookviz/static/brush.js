// A brush on the notebook's input: pixels are marked here, the kernel changes them and runs.

import { el, menu, setAttribute, visible } from "./dom.js";
import { slider } from "./heading.js";
import { paintDisc } from "./intake.js";

const BRUSH_KINDS = ["grey", "mean", "blur", "noise", "draw", "restore"];

/** Controls, `root`, and a sheet over the input. */
export class Brush {
  /**
   * @param {import("./app.js").App} app
   * @param {{edit: (what: any) => void, idle: boolean, listeners: Set<() => void>}} source
   */
  constructor(app, source) {
    this.app = app;
    this.source = source;
    this.on = false;
    this.kind = "grey";
    this.radius = 0.06; // as a share of the picture's width
    /** @type {Uint8Array | null} */
    this.mask = null; // the pixels of the stroke that is being made
    /** @type {{u: number, v: number} | null} */
    this.from = null; // where a window begins, or the stroke was last
    this.cursor = { u: 0.5, v: 0.5 }; // of the keys
    this.sent = false;
    this.button = el("button", { class: "hv-toggle", type: "button", title: "change the input below a brush, and see what follows" }, "brush");
    this.button.addEventListener("click", () => this.toggle());
    const same = (/** @type {string[]} */ names) => names.map((name) => /** @type {[string, string]} */ ([name, name]));
    this.kinds = menu("what the brush does", same(BRUSH_KINDS), (kind) => {
      this.kind = kind;
      this.show();
    });
    this.shapes = menu("brush, or a window to drag", same(["freehand", "window"]), () => {});
    this.size = slider("size of the brush", (place) => {
      this.radius = place / 200;
    });
    [this.size.min, this.size.max, this.size.value] = ["1", "50", "12"];
    this.colour = el("input", { type: "color", value: "#ff0000", "aria-label": "colour of the brush" });
    this.more = el("span", { class: "hv-line" }, this.kinds, this.shapes, this.size, this.colour);
    this.root = el("span", { class: "hv-line hv-brushes" }, this.button, this.more);
    this.sheet = el("canvas", { class: "hv-brush", width: 1, height: 1, hidden: true, tabindex: 0, "aria-label": "paint here; by keys: arrows, then space" });
    app.parts.input.frame.append(this.sheet);
    this.listen();
    source.listeners.add(() => this.wait());
    app.state.onChange((changed) => {
      if (changed.has("zoom")) this.place();
    });
    this.show();
  }

  /** The input of the latest run; null until it is here. */
  get picture() {
    const { data, source } = this.app;
    return data && source.picture(data.header.place);
  }

  /** Height and width of the input. */
  get measures() {
    const { picture } = this;
    return picture ? /** @type {[number, number]} */ (picture.size ?? [picture.height, picture.width]) : null;
  }

  toggle() {
    this.on = !this.on;
    this.show();
    if (this.on) this.sheet.focus();
  }

  show() {
    setAttribute(this.button, "aria-pressed", this.on ? "true" : "false");
    visible(this.more, this.on);
    visible(this.colour, this.kind === "draw");
    this.sheet.hidden = !this.on;
    if (this.on) this.place();
  }

  /** As the picture below it is enlarged. */
  place() {
    this.sheet.style.transform = this.app.parts.input.canvas.style.transform;
    this.sheet.style.transformOrigin = "0 0";
  }

  listen() {
    const { sheet } = this;
    const at = (/** @type {PointerEvent} */ event) => {
      const box = sheet.getBoundingClientRect();
      return { u: (event.clientX - box.x) / box.width, v: (event.clientY - box.y) / box.height };
    };
    for (const kind of ["pointerdown", "pointermove", "pointerup", "dblclick"]) sheet.addEventListener(kind, (event) => event.stopPropagation());
    sheet.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      sheet.setPointerCapture(event.pointerId);
      this.begin(at(event));
    });
    sheet.addEventListener("pointermove", (event) => {
      if (this.mask && event.buttons & 1) this.go(at(event));
    });
    sheet.addEventListener("pointerup", () => this.end());
    sheet.addEventListener("pointercancel", () => this.cancel());
    sheet.addEventListener("keydown", (event) => this.press(event));
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    const { cursor } = this;
    const inside = (/** @type {number} */ share) => Math.min(Math.max(share, 0), 1);
    if (event.ctrlKey || event.metaKey) return;
    if (step) this.cursor = { u: inside(cursor.u + this.radius * Number(step[0])), v: inside(cursor.v + this.radius * Number(step[1])) };
    else if (event.key === " ") {
      const far = this.shapes.value === "window" ? this.radius : 0;
      this.begin({ u: cursor.u - far, v: cursor.v - far });
      this.go({ u: cursor.u + far, v: cursor.v + far });
      this.end();
    } else if (event.key === "Escape") this.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (step) this.app.state.set({ hover: this.cursor });
  }

  /** @param {{u: number, v: number}} spot */
  begin(spot) {
    const size = this.measures;
    if (!size) return;
    this.mask = new Uint8Array(size[0] * size[1]);
    this.from = spot;
    this.sent = false;
    this.go(spot);
  }

  /** @param {{u: number, v: number}} spot */
  go(spot) {
    const [height, width] = this.measures ?? [0, 0];
    const { from, mask, radius } = this;
    if (!mask || !from) return;
    if (this.shapes.value === "window") {
      const [left, right] = [from.u, spot.u].sort((a, b) => a - b);
      const [top, bottom] = [from.v, spot.v].sort((a, b) => a - b);
      const first = (/** @type {number | undefined} */ share, /** @type {number} */ count) => Math.max(Math.round(Number(share) * count), 0);
      mask.fill(0);
      for (let row = first(top, height); row < Math.min(first(bottom, height), height); row++)
        mask.fill(1, row * width + first(left, width), row * width + Math.min(first(right, width), width));
    } else {
      const far = Math.hypot((spot.u - from.u) * width, (spot.v - from.v) * height);
      const steps = Math.max(1, Math.ceil(far / Math.max(radius * width * 0.5, 0.5)));
      for (let step = 0; step <= steps; step++) {
        const share = step / steps;
        paintDisc(width, height, from.u + share * (spot.u - from.u), from.v + share * (spot.v - from.v), radius, (place) => {
          mask[place] = 1;
        });
      }
      this.from = spot;
    }
    this.draw();
  }

  /** What is marked, until the run is there. */
  draw() {
    const [height, width] = this.measures ?? [1, 1];
    const { mask, sheet } = this;
    sheet.width = width;
    sheet.height = height;
    const context = sheet.getContext("2d");
    if (!mask || !context) return;
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    mask.forEach((marked, place) => {
      if (marked) pixels[place] = 0x990070d9; // the accent, half through
    });
    context.putImageData(image, 0, 0);
  }

  end() {
    const { mask } = this;
    const size = this.measures;
    if (!mask || !size) return;
    this.mask = null;
    if (!mask.includes(1)) return;
    const colour = [1, 3, 5].map((from) => Number.parseInt(this.colour.value.slice(from, from + 2), 16));
    if (this.app.at.shown_run === "original") this.app.state.set({ shown_run: "edited" });
    this.sent = true;
    this.source.edit({ set: "stroke", kind: this.kind, shape: size, colour, bytes: mask });
  }

  cancel() {
    this.mask = null;
    this.draw();
  }

  /** The new run is here: what was marked is seen in the picture itself. */
  wait() {
    if (!this.sent || this.mask || !this.source.idle || !this.picture) return;
    this.sent = false;
    this.draw();
  }
}
