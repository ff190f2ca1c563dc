// Hands: the shown channel's factor, the edits that there are, and whose pictures are seen.

import { choose, el, menu, setAttribute, setText, visible } from "./dom.js";

/**
 * @typedef {{words: string, layer: string, channel: number | null, factor: number | null}} Edit
 * @typedef {{layer: string, channel: number}} Place
 */

const REST = 60; // milliseconds between two factors that are asked for while the slider moves

/** A line of controls; `onEdit` gets what the kernel is to do. */
export class Edits {
  /**
   * @param {(what: any) => void} onEdit
   * @param {(version: string) => void} onVersion
   */
  constructor(onEdit, onVersion) {
    this.onEdit = onEdit;
    /** @type {Place} */
    this.place = { layer: "", channel: 0 };
    this.name = el("span", { class: "hv-dim hv-what" });
    this.factor = el("input", { type: "range", min: 0, max: 2, step: 0.05, class: "hv-factor" });
    this.factor.value = "1";
    this.number = el("b", { class: "hv-number-now" });
    this.off = el("button", { class: "hv-toggle" }, "off");
    const versions = ["edited", "original", "difference"];
    this.version = menu(
      "whose pictures are shown",
      versions.map((name) => [name, name]),
      onVersion,
    );
    this.list = el("span", { class: "hv-edits" });
    this.root = el(
      "div",
      { class: "hv-line hv-hands" },
      this.name,
      this.factor,
      this.number,
      this.off,
      this.version,
      this.list,
    );
    this.drawn = "";
    this.timer = 0;
    this.factor.addEventListener("input", () => this.moved());
    this.off.addEventListener("click", () => {
      const factor = this.known === 0 ? 1 : 0;
      this.stand(factor);
      this.send(factor);
    });
    this.list.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      const chosen = /** @type {HTMLElement} */ (event.target).closest("button");
      if (chosen) onEdit({ set: "drop", number: Number(chosen.dataset.number) });
    });
  }

  /** @param {number} factor What slider and number say. */
  stand(factor) {
    if (this.factor.value !== String(Math.min(factor, 2))) this.factor.value = String(factor);
    setText(this.number, `× ${factor.toFixed(2)}`);
  }

  /** The slider moves: the number at once, the network when it rests a moment. */
  moved() {
    this.stand(Number(this.factor.value));
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send(Number(this.factor.value)), REST);
  }

  /** @param {number} factor */
  send(factor) {
    clearTimeout(this.timer);
    this.timer = 0;
    this.onEdit({ set: "factor", factor, ...this.place });
  }

  /**
   * @param {Edit[]} edits
   * @param {Place & {version: string}} at
   * @param {string[]} versions What the original run, the edited one and the difference are called.
   */
  show(edits, at, versions) {
    const { layer, channel } = at;
    const moved = layer !== this.place.layer || channel !== this.place.channel;
    this.place = { layer, channel };
    const own = edits.filter((each) => each.layer === layer && each.channel === channel);
    this.known = own.at(-1)?.factor ?? 1;
    setText(this.name, `channel ${channel} ×`);
    setAttribute(this.factor, "aria-label", `factor of ${channel}`);
    setAttribute(this.off, "aria-pressed", this.known === 0 ? "true" : "false");
    setAttribute(this.off, "title", this.known === 0 ? "switch it on again" : "switch the channel off");
    // A hand on the slider is ahead of the kernel.
    if (moved || (!this.timer && document.activeElement !== this.factor)) this.stand(this.known);
    setAttribute(this.factor, "aria-valuetext", this.number.textContent ?? "");
    visible(this.version, versions.length > 0);
    const [original, edited, difference] = versions;
    const names = { edited, original, difference };
    for (const option of this.version.options)
      setText(option, names[/** @type {keyof typeof names} */ (option.value)] ?? option.value);
    choose(this.version, at.version);
    const key = JSON.stringify(edits);
    if (key === this.drawn) return;
    this.drawn = key;
    const chips = edits.map(({ words }, number) =>
      el("button", { class: "hv-edit", "data-number": number, title: `take out: ${words}` }, `${words} ✕`),
    );
    this.list.replaceChildren(...chips);
  }
}
