// Hands: the shown channel's factor, the edits that there are, and whose pictures are seen.

import { choose, el, menu, setAttribute, setText, visible } from "./dom.js";
import { middle } from "./numbers.js";

/**
 * @typedef {{words: string, layer: string, channel: number | null, factor: number | null, key: number}} Edit
 * @typedef {{layer: string, channel: number}} Place
 */

const CHIP = 48; // letters of an edit's chip
const REST = 60; // milliseconds between two factors that are asked for while the slider moves

/** A line of controls; `onEdit` gets what the kernel is to do. */
export class Edits {
  /**
   * @param {(what: import("./messages.d.ts").AnyRequest) => void} onEdit
   * @param {(run: string) => void} onRun
   */
  constructor(onEdit, onRun) {
    this.onEdit = onEdit;
    /** @type {Place} */
    this.place = { layer: "", channel: 0 };
    this.known = 1;
    /** @type {{place: Place, known: number} | null} */
    this.pressed = null;
    this.name = el("span", { class: "hv-dim hv-what" });
    this.factor = el("input", { type: "range", min: 0, max: 2, step: 0.05, class: "hv-factor" });
    this.factor.value = "1";
    this.number = el("b", { class: "hv-number-now" });
    this.off = el("button", { class: "hv-toggle" }, "off");
    const runs = ["edited", "original", "difference"];
    this.shownRun = menu(
      "whose pictures are shown",
      runs.map((name) => [name, name]),
      onRun,
    );
    this.list = el("span", { class: "hv-edits" });
    this.undo = el("button", { class: "hv-toggle", title: "undo the latest edit (Ctrl+Z)" }, "undo");
    this.restore = el("button", { class: "hv-toggle", title: "undo all edits" }, "restore all");
    this.undo.addEventListener("click", () => onEdit({ set: "undo" }));
    this.restore.addEventListener("click", () => onEdit({ set: "restore" }));
    this.first = el("div", { class: "hv-line hv-hands" }, this.name, this.factor, this.number, this.off);
    this.second = el("div", { class: "hv-line hv-hands" }, el("span", { class: "hv-dim hv-what" }, "shown:"), this.shownRun, this.undo, this.restore, this.list);
    this.root = el("div", {}, this.first, this.second);
    this.drawn = "";
    this.timer = 0;
    this.factor.addEventListener("input", () => this.moved());
    // What was on the screen when the finger came down is meant, whatever comes before it goes up.
    this.off.addEventListener("pointerdown", () => {
      this.pressed = { place: this.place, known: this.known };
    });
    this.off.addEventListener("click", () => {
      const { place, known } = this.pressed ?? { place: this.place, known: this.known };
      this.pressed = null;
      const factor = known === 0 ? 1 : 0;
      if (place.layer === this.place.layer && place.channel === this.place.channel) this.stand(factor);
      this.send(factor, place);
    });
    this.list.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      const chosen = /** @type {HTMLElement} */ (event.target).closest("button");
      if (chosen) onEdit({ set: "drop", key: Number(chosen.dataset.key) });
    });
  }

  /** @param {number} factor What slider and number say. */
  stand(factor) {
    if (this.factor.value !== String(Math.min(factor, 2))) this.factor.value = String(factor);
    setText(this.number, factor.toFixed(2));
  }

  /** The slider moves: the number at once, the network when it rests a moment. */
  moved() {
    this.stand(Number(this.factor.value));
    clearTimeout(this.timer);
    const [factor, { place }] = [Number(this.factor.value), this];
    this.timer = setTimeout(() => this.send(factor, place), REST);
  }

  /**
   * @param {number} factor
   * @param {Place} place The channel that is meant.
   */
  send(factor, place) {
    clearTimeout(this.timer);
    this.timer = 0;
    this.onEdit({ set: "factor", factor, ...place });
  }

  /**
   * @param {Edit[]} edits
   * @param {Place & {shown_run: string}} at
   * @param {string[]} runs What the original run, the edited one and the difference are called.
   * @param {string} kind What a channel is called here: a head of attention, too.
   */
  show(edits, at, runs, kind) {
    const { layer, channel } = at;
    const moved = layer !== this.place.layer || channel !== this.place.channel;
    this.place = { layer, channel };
    const own = edits.filter((each) => each.layer === layer && each.channel === channel);
    this.known = own.at(-1)?.factor ?? 1;
    setText(this.name, `scale ${kind} ${channel}:`);
    setAttribute(this.factor, "aria-label", `factor of ${channel}`);
    setAttribute(this.off, "aria-pressed", this.known === 0 ? "true" : "false");
    const off = kind === "head" ? "switch the head off" : "switch the channel off";
    setAttribute(this.off, "title", this.known === 0 ? "switch it on again" : off);
    // A hand on the slider is ahead of the kernel.
    if (moved || (!this.timer && document.activeElement !== this.factor)) this.stand(this.known);
    setAttribute(this.factor, "aria-valuetext", this.number.textContent ?? "");
    visible(this.second, runs.length > 0 || edits.length > 0);
    const [original, edited, difference] = runs;
    const names = { edited, original, difference };
    for (const option of this.shownRun.options)
      setText(option, names[/** @type {keyof typeof names} */ (option.value)] ?? option.value);
    choose(this.shownRun, at.shown_run);
    const all = JSON.stringify(edits);
    if (all === this.drawn) return;
    this.drawn = all;
    visible(this.undo, edits.length > 0);
    visible(this.restore, edits.length > 1);
    const layers = [...new Set(edits.map((each) => each.layer))];
    this.list.replaceChildren(...layers.flatMap((layer) => chipsOf(layer, edits.filter((each) => each.layer === layer))));
  }
}

/**
 * A button for each edit of a layer; several of them are framed together, and have the layer's name once.
 * @param {string} layer
 * @param {Edit[]} edits
 */
function chipsOf(layer, edits) {
  const chip = (/** @type {Edit} */ { words, key }, /** @type {string} */ shown) =>
    el("button", { class: "hv-edit", "data-key": key, title: `remove: ${words}`, "aria-label": `${words}, remove` }, `${middle(shown, CHIP)} ✕`);
  if (edits.length === 1) return edits.map((edit) => chip(edit, edit.words));
  const named = edits.every(({ words }) => words.startsWith(`${layer}, `));
  const chips = edits.map((edit) => chip(edit, named ? edit.words.slice(layer.length + 2) : edit.words));
  return [el("span", { class: "hv-edits-of-layer" }, ...(named ? [el("span", { class: "hv-dim" }, layer)] : []), ...chips)];
}

/**
 * Ctrl+Z, or Cmd+Z, where no text is being written.
 * @param {HTMLElement} root
 * @param {(what: import("./messages.d.ts").AnyRequest) => void} onEdit
 */
export function listenToUndo(root, onEdit) {
  root.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.composedPath()[0] ?? event.target);
    const writes = target instanceof HTMLInputElement && target.type !== "range";
    if (writes || event.key !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    onEdit({ set: "undo" });
  });
}
