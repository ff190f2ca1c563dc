// Channels and places that are kept, each with a note: a tray that leads back to them.

import { download, el, setText, visible } from "./dom.js";

/**
 * @typedef {{layer: string, channel: number, call: number, sample: number, depth: number,
 *   position: [number, number] | null, place: [number, number] | null, target: string, note: string}} Pin
 */

/** The tray; the source keeps what is in it. */
export class Tray {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /** @type {any[]} Those of a source that keeps none. */
    this.own = [...(app.facts.pins ?? [])];
    this.button = el("button", { type: "button", class: "hv-toggle", title: "keep this channel and place, with a note: key p" }, "pin");
    this.button.addEventListener("click", () => this.add());
    this.list = el("span", { class: "hv-pin-list" });
    this.table = el("button", { type: "button", class: "hv-toggle", title: "all pins as a CSV file" }, "save table");
    this.table.addEventListener("click", () => download(new Blob([tableOf(this.pins)], { type: "text/csv" }), "pins.csv"));
    this.root = el("div", { class: "hv-line hv-pins", role: "group", "aria-label": "pins", hidden: true }, el("span", { class: "hv-dim" }, "pins"), this.list, this.table);
    this.drawn = "";
  }

  /** @returns {Pin[]} */
  get pins() {
    return this.app.source.pins ?? this.own;
  }

  /** @param {Pin[]} pins */
  keep(pins) {
    const { source } = this.app;
    if (source.pins) source.pins = pins;
    else this.own = pins;
    this.app.schedule();
  }

  /** What is shown is kept; its note can be written at once. */
  add() {
    const { at, data, facts } = this.app;
    if (!data) return;
    const { layer, channel, call, sample, depth, place } = at;
    const [height, width] = data.header.size;
    const spot = (/** @type {[number, number]} */ [down, right]) =>
      /** @type {[number, number]} */ ([Math.min(Math.floor(down * height), height - 1), Math.min(Math.floor(right * width), width - 1)]);
    const position = place && spot(place);
    this.keep([...this.pins, { layer, channel, call, sample, depth, position, place, target: facts.target.name, note: "" }]);
    this.show();
    const notes = this.list.querySelectorAll("input");
    notes[notes.length - 1]?.focus();
  }

  show() {
    const { pins } = this;
    visible(this.root, pins.length > 0);
    const key = JSON.stringify(pins.map(({ note: _, ...where }) => where));
    if (key !== this.drawn) {
      this.drawn = key;
      this.list.replaceChildren(...pins.map((_, place) => this.chip(place)));
    }
    [...this.list.querySelectorAll("input")].forEach((field, place) => {
      const note = pins[place]?.note ?? "";
      if (field !== field.ownerDocument.activeElement && field.value !== note) field.value = note;
    });
  }

  /** @param {number} place Of the pin. */
  chip(place) {
    const { layer, channel, position } = /** @type {Pin} */ (this.pins[place]);
    const words = `${layer || "(model)"}, channel ${channel}${position ? `, row ${position[0]}, column ${position[1]}` : ""}`;
    const go = el("button", { type: "button", class: "hv-toggle", title: `go to ${words}` });
    setText(go, [layer || "(model)", channel, ...(position ? [position.join(", ")] : [])].join(" · "));
    go.addEventListener("click", () => this.go(place));
    const note = el("input", { type: "text", placeholder: "note", "aria-label": `note on ${words}`, size: 14 });
    note.addEventListener("input", () =>
      this.keep(this.pins.map((pin, at) => (at === place ? { ...pin, note: note.value } : pin))),
    );
    const away = el("button", { type: "button", class: "hv-toggle", "aria-label": `remove the pin ${words}` }, "×");
    away.addEventListener("click", () => this.keep(this.pins.filter((_, at) => at !== place)));
    return el("span", { class: "hv-pin" }, go, note, away);
  }

  /** @param {number} place Of the pin. */
  go(place) {
    const pin = this.pins[place];
    if (!pin) return;
    const { layer, channel, call, sample, depth } = pin;
    this.app.state.set({ layer, channel, call, sample, depth, place: pin.place });
  }
}

/**
 * As comma-separated values; as `Pins.to_csv` of hookviz.view.pins has it.
 * @param {Pin[]} pins
 */
export function tableOf(pins) {
  const cell = (/** @type {any} */ value) => {
    const text = String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const rows = pins.map(({ layer, channel, call, sample, depth, position, place, target, note }) =>
    [layer, channel, call, sample, depth, ...(position ?? ["", ""]), ...(place ?? ["", ""]), target, note],
  );
  const head = ["layer", "channel", "call", "sample", "depth", "row", "column", "down", "right", "target", "note"];
  return [head, ...rows].map((row) => `${row.map(cell).join(",")}\n`).join("");
}
