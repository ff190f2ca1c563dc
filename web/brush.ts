// A brush, a rectangle and an eraser on the input: pixels are marked here, and the source changes them.

import { el, menu, setAttribute, visible } from "./dom.ts";
import { visitDisc } from "./strokes.ts";
import type { App } from "./app.ts";
import type { AnyRequest } from "./messages.d.ts";

/** Controls, `root`, and a sheet over the input. */
export class Brush {
  on = false;
  radius = 0.06; // as a share of the picture's width
  mask: Uint8Array | null = null; // the pixels of the stroke that is being made
  from: { u: number; v: number } | null = null; // where a rectangle begins, or the stroke was last
  cursor = { u: 0.5, v: 0.5 }; // of the keys
  sent = false;
  measures: [number, number] | null = null; // height and width of the input that was painted on last
  button = el("button", {
    class: "hv-toggle",
    type: "button",
    title: "paint over a part of the input and see how the prediction changes",
  }, "paint");
  tool: HTMLSelectElement;
  size: HTMLInputElement;
  more: HTMLSpanElement;
  root: HTMLSpanElement;
  sheet = el("canvas", {
    class: "hv-brush",
    width: 1,
    height: 1,
    hidden: true,
    tabindex: 0,
    "aria-label": "paint here; by keyboard: arrow keys, then space",
  });

  /** @param available Whether there is an input that can be painted over. */
  constructor(
    public app: App,
    public source: { edit: (what: AnyRequest) => void; busy: boolean; listeners: Set<() => void> },
    available: () => boolean,
  ) {
    this.button.addEventListener("click", () => this.toggle());
    const tools = ["brush", "rectangle", "eraser"].map((name): [string, string] => [name, name]);
    this.tool = menu(
      "brush and rectangle fill with the mean colour; the eraser restores",
      tools,
      () => {},
    );
    setAttribute(this.tool, "aria-label", "tool");
    const title = "size of brush and eraser";
    this.size = el("input", { type: "range", min: 1, max: 50, title, "aria-label": title });
    this.size.value = "12";
    this.size.addEventListener("input", () => {
      this.radius = Number(this.size.value) / 200;
    });
    this.more = el("span", { class: "hv-line" }, this.tool, this.size);
    this.root = el("span", { class: "hv-line" }, this.button, this.more);
    app.parts.input.frame.append(this.sheet);
    const row = el(
      "div",
      { class: "hv-line hv-hands" },
      el("span", { class: "hv-dim hv-what" }, "paint over the input:"),
      this.root,
    );
    app.parts.editing.append(row);
    app.stopPainting = () => {
      if (this.on) this.toggle();
    };
    const offer = () => {
      visible(row, available());
      app.occlude = available() ? (u, v) => this.occlude(u, v) : null;
    };
    source.listeners.add(offer);
    offer();
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

  /** Measure the input; while the picture of a new run is on its way, that of the last one counts. */
  measure() {
    const { picture } = this;
    if (picture) {
      this.measures = (picture.size ?? [picture.height, picture.width]) as [number, number];
    }
    return this.measures;
  }

  toggle() {
    this.on = !this.on;
    this.show();
    if (this.on) this.sheet.focus();
  }

  show() {
    setAttribute(this.button, "aria-pressed", this.on ? "true" : "false");
    visible(this.more, this.on);
    this.sheet.hidden = !this.on;
    if (this.on) this.place();
  }

  /** As the picture below it is enlarged. */
  place() {
    this.sheet.style.transform = this.app.parts.input.transform;
    this.sheet.style.transformOrigin = "0 0";
  }

  listen() {
    const { sheet } = this;
    const at = (event: PointerEvent) => {
      const box = sheet.getBoundingClientRect();
      return { u: (event.clientX - box.x) / box.width, v: (event.clientY - box.y) / box.height };
    };
    for (const kind of ["pointerdown", "pointermove", "pointerup", "dblclick"]) {
      sheet.addEventListener(kind, (event) => event.stopPropagation());
    }
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

  press(event: KeyboardEvent) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const step = steps[event.key as keyof typeof steps];
    const { cursor } = this;
    const inside = (share: number) => Math.min(Math.max(share, 0), 1);
    if (event.ctrlKey || event.metaKey) return;
    if (step) {
      this.cursor = {
        u: inside(cursor.u + this.radius * Number(step[0])),
        v: inside(cursor.v + this.radius * Number(step[1])),
      };
    } else if (event.key === " ") {
      const far = this.tool.value === "rectangle" ? this.radius : 0;
      this.begin({ u: cursor.u - far, v: cursor.v - far });
      this.go({ u: cursor.u + far, v: cursor.v + far });
      this.end();
    } else if (event.key === "Escape") this.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (step) this.app.state.set({ hover: this.cursor });
  }

  begin(spot: { u: number; v: number }) {
    const size = this.measure();
    if (!size) return;
    this.mask = new Uint8Array(size[0] * size[1]);
    this.from = spot;
    this.sent = false;
    this.go(spot);
  }

  go(spot: { u: number; v: number }) {
    const [height, width] = this.measures ?? [0, 0];
    const { from, mask, radius } = this;
    if (!mask || !from) return;
    if (this.tool.value === "rectangle") {
      const [left, right] = [from.u, spot.u].sort((a, b) => a - b);
      const [top, bottom] = [from.v, spot.v].sort((a, b) => a - b);
      const first = (share: number | undefined, count: number) =>
        Math.max(Math.round(Number(share) * count), 0);
      mask.fill(0);
      for (let row = first(top, height); row < Math.min(first(bottom, height), height); row++) {
        mask.fill(
          1,
          row * width + first(left, width),
          row * width + Math.min(first(right, width), width),
        );
      }
    } else {
      const far = Math.hypot((spot.u - from.u) * width, (spot.v - from.v) * height);
      const steps = Math.max(1, Math.ceil(far / Math.max(radius * width * 0.5, 0.5)));
      for (let step = 0; step <= steps; step++) {
        const share = step / steps;
        visitDisc(
          width,
          height,
          from.u + share * (spot.u - from.u),
          from.v + share * (spot.v - from.v),
          radius,
          (pixel) => {
            mask[pixel] = 1;
          },
        );
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
    if (this.app.at.shown_run === "original") this.app.state.set({ shown_run: "edited" });
    this.sent = true;
    this.source.edit({
      set: this.tool.value === "eraser" ? "erase" : "paint",
      shape: size,
      bytes: mask,
    });
  }

  /** Paint over a square around a position of the input. */
  occlude(u: number, v: number) {
    const before = this.tool.value;
    this.tool.value = "rectangle";
    const [height, width] = this.measure() ?? [1, 1];
    this.begin({ u: u - this.radius, v: v - (this.radius * width) / height });
    this.go({ u: u + this.radius, v: v + (this.radius * width) / height });
    this.end();
    this.tool.value = before;
  }

  cancel() {
    this.mask = null;
    this.draw();
  }

  /** The new run is here: what was marked is seen in the picture itself. */
  wait() {
    if (!this.sent || this.mask || this.source.busy || !this.picture) return;
    this.sent = false;
    this.draw();
  }
}
