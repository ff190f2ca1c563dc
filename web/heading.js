// The shown layer in words and as two sliders, with the fields that find another.

import { choose, el, menu, setAttribute, setText, visible } from "./dom.js";
import { Search } from "./search.js";

/**
 * A slider that says in words where it stands.
 * @param {string} label
 * @param {(position: number) => void} onMove
 */
export function slider(label, onMove) {
  const made = el("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": label, title: label });
  made.addEventListener("input", () => onMove(Number(made.value)));
  return made;
}

/**
 * @param {any} made
 * @param {number} count How many positions it has.
 * @param {number} position
 * @param {string} words
 */
export function slide(made, count, position, words) {
  if (Number(made.max) !== count - 1) made.max = String(count - 1);
  if (made.value !== String(position)) made.value = String(position);
  setAttribute(made, "aria-valuetext", words);
  made.disabled = count < 2;
}

/** Name and words of the layer, channel and what else there is to choose from. */
export class Heading {
  /**
   * @param {import("./state.js").State} state
   * @param {any} facts
   * @param {(position: number) => void} toChannel
   * @param {(name: string) => void} toLayer
   * @param {(order: string) => void} toOrder
   */
  constructor(state, facts, toChannel, toLayer, toOrder) {
    this.name = el("h2", { class: "hv-name" });
    this.does = el("span", {});
    this.size = el("span", {});
    this.words = el("span", { class: "hv-dim hv-does" }, this.does, this.size);
    this.find = new Search("find a layer", "find a layer: name, type, size …", "no layer has that name, type or size", toLayer);
    this.what = el("span", { class: "hv-dim hv-what" }, "channel");
    this.channel = slider("channel", toChannel);
    this.word = "channel";
    this.number = el("b", { class: "hv-number-now" });
    this.rank = el("span", { class: "hv-dim" });
    this.order = menu(
      "order of the channels",
      facts.choices.order.map((/** @type {string} */ name) => [name, ORDERS[name] ?? name]),
      toOrder,
    );
    this.by = el("span", { class: "hv-by" }, this.rank, this.order);
    const after = facts.choices.shown_after.map((/** @type {string} */ name) => [name, SHOWN_AFTER[name] ?? name]);
    this.shownAfter = menu("raw output, or after normalization or activation", after, (name) => state.set({ shown_after: name }));
    /** @type {Record<string, any>} */
    this.others = {};
    const more = ["call", "sample", "depth"].map((name) => {
      const made = slider(name, (position) => state.set({ [name]: position }));
      const number = el("b", { class: "hv-number-now" });
      const root = el("label", { class: `hv-line hv-more hv-by-${name}` }, el("span", {}, name), made, number);
      this.others[name] = { made, number, root };
      return root;
    });
    /** Where the order's work is told of. */
    this.work = el("span", { class: "hv-work" });
    this.root = el(
      "div",
      { class: "hv-heading" },
      el("div", { class: "hv-line" }, this.name, this.words, this.shownAfter, this.find.root),
      el(
        "div",
        { class: "hv-line" },
        this.what,
        this.channel,
        this.number,
        this.by,
        this.work,
      ),
      el("div", { class: "hv-line hv-others" }, ...more),
    );
  }

  /**
   * @param {any} layer Its entry among the layers.
   * @param {string} waiting What it waits for, in words; or empty.
   */
  layer(layer, waiting) {
    setText(this.name, layer.name || "(model)");
    this.word = layer.attends ? "head" : "channel";
    setText(this.what, this.word);
    const does = `${layer.kind} ${layer.text}`.trim();
    setText(this.does, waiting || does);
    setText(this.size, waiting || !layer.size ? "" : `${does ? "· " : ""}${layer.size}`); // never cut
    setAttribute(this.words, "title", [does, layer.size].filter(Boolean).join(" · "));
  }

  /**
   * @param {Record<string, number>} counts
   * @param {any} at
   * @param {number} position
   * @param {string} order What the channels are sorted by.
   */
  show(counts, at, position, order) {
    slide(this.channel, counts.channel ?? 0, position, `${this.word} ${at.channel} of ${counts.channel}`);
    setText(this.number, String(at.channel));
    const by = order === "index" ? `of ${counts.channel}, sorted by` : `rank ${position + 1} of ${counts.channel} by`;
    setText(this.rank, by);
    choose(this.order, at.order);
    choose(this.shownAfter, at.shown_after);
    for (const [name, { made, number, root }] of Object.entries(this.others)) {
      const count = counts[name] ?? 0;
      visible(root, count > 1);
      slide(made, count, at[name], `${name} ${at[name]} (of 0 to ${count - 1})`);
      setText(number, `${at[name]} (of 0 to ${count - 1})`);
    }
  }
}

/** @type {Record<string, string>} */
const SHOWN_AFTER = { output: "raw output", norm: "after normalization", activation: "after activation" };

/** @type {Record<string, string>} */
const ORDERS = {
  index: "number",
  mean: "largest mean",
  max: "largest maximum",
  zeros: "most zeros",
  gradient: "largest gradient",
  "gradcam weight": "Grad-CAM weight",
  "score drop": "score lost if switched off (runs the model)",
  value: "value here",
  contrast: "z-score here",
  contribution: "value × gradient here",
  similarity: "similarity",
};
