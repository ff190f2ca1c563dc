// The shown layer in words, the slider of channels, and the field that finds a layer.

import { choose, el, menu, setAttribute, setText, visible } from "./dom.ts";
import { Search } from "./search.ts";
import type { Counts, LayerFacts } from "./messages.d.ts";
import type { Facts } from "./source.ts";
import type { State, Values } from "./state.ts";

const AXES = ["call", "sample", "depth"] as const;

/** A slider whose positions are whole numbers from 0. */
export function slider(label: string, onMove: (position: number) => void) {
  const made = el("input", {
    type: "range",
    min: 0,
    max: 0,
    step: 1,
    "aria-label": label,
    title: label,
  });
  made.addEventListener("input", () => onMove(Number(made.value)));
  return made;
}

/** @param count How many positions it has. */
export function slide(
  made: HTMLInputElement,
  count: number,
  position: number,
  words: string,
) {
  if (Number(made.max) !== count - 1) made.max = String(count - 1);
  if (made.value !== String(position)) made.value = String(position);
  setAttribute(made, "aria-valuetext", words);
  made.disabled = count < 2;
}

/**
 * The words beside the sliders of layer and channel, and the sliders of call, sample and depth.
 */
export class Heading {
  name = el("h2", { class: "hv-name" });
  does = el("span", {});
  size = el("span", {});
  words: HTMLSpanElement;
  find: Search;
  finder = el("button", {
    type: "button",
    class: "hv-finder",
    title: "find a layer by name, type or size (key /)",
    "aria-label": "search",
    "aria-expanded": "false",
  }, "⌕");
  layerSide: HTMLDivElement;
  layerEnd: HTMLDivElement;
  what = el("span", { class: "hv-dim hv-row-name" }, "channel");
  channel: HTMLInputElement;
  word = "channel";
  number = el("b", { class: "hv-number-now" });
  rank = el("span", { class: "hv-dim" });
  order: HTMLSelectElement;
  by: HTMLSpanElement;
  shownAfter: HTMLSelectElement;
  others: {
    name: typeof AXES[number];
    made: HTMLInputElement;
    number: HTMLElement;
    root: HTMLElement;
  }[];
  /** The progress of an order that has to be computed. */
  work = el("span", { class: "hv-work" });
  root: HTMLDivElement;

  constructor(
    state: State,
    facts: Facts,
    toChannel: (position: number) => void,
    toLayer: (name: string) => void,
    toOrder: (order: string) => void,
  ) {
    this.words = el("span", { class: "hv-dim hv-does" }, this.does, this.size);
    this.find = new Search(
      "find a layer",
      "find a layer: name, type, size …",
      "no layer has that name, type or size",
      toLayer,
    );
    this.find.root.hidden = true;
    this.finder.addEventListener("click", () => this.search(Boolean(this.find.root.hidden)));
    this.find.input.addEventListener("blur", () => this.search(false));
    // A press on the button must not close the field that the click would then open again.
    this.finder.addEventListener("pointerdown", (event) => event.preventDefault());
    this.layerSide = el("div", { class: "hv-value" }, this.name, this.words);
    this.layerEnd = el("div", { class: "hv-end-of-row" }, this.finder, this.find.root);
    this.channel = slider("channel", toChannel);
    this.order = menu(
      "order of the channels",
      facts.choices.order.map((name) => [name, ORDERS[name] ?? name]),
      toOrder,
    );
    this.by = el("span", { class: "hv-by" }, this.rank, this.order);
    const after = facts.choices.shown_after.map((name): [string, string] => [
      name,
      SHOWN_AFTER[name] ?? name,
    ]);
    this.shownAfter = menu(
      "raw output, or after normalization or activation",
      after,
      (name) => state.set({ shown_after: name }),
    );
    this.others = AXES.map((name) => {
      const made = slider(name, (position) => state.set({ [name]: position }));
      const number = el("b", { class: "hv-number-now" });
      const root = el(
        "label",
        { class: "hv-line hv-more" },
        el("span", {}, name),
        made,
        number,
      );
      return { name, made, number, root };
    });
    this.root = el(
      "div",
      { class: "hv-heading" },
      el(
        "div",
        { class: "hv-row" },
        this.what,
        this.channel,
        this.work,
        el("div", { class: "hv-value hv-value-line" }, this.number, this.by),
      ),
      el("div", { class: "hv-line hv-others" }, ...this.others.map(({ root }) => root)),
    );
  }

  /** @param open The field that finds a layer. */
  search(open: boolean) {
    visible(this.find.root, open);
    setAttribute(this.finder, "aria-expanded", String(open));
    if (open) this.find.input.focus();
  }

  /**
   * @param layer Its entry among the layers.
   * @param rank Its position among them.
   * @param waiting The reason for waiting, or empty.
   */
  layer(layer: LayerFacts, rank: string, waiting: string) {
    setText(this.name, layer.name || "(model)");
    setAttribute(this.name, "title", layer.name || "(model)");
    this.word = layer.attends ? "head" : "channel";
    setText(this.what, this.word);
    const does = `${layer.kind} ${layer.text}`.trim();
    setText(this.does, waiting || [rank, does.split(",")[0]].filter(Boolean).join(" · "));
    setText(this.size, waiting || !layer.size ? "" : `· ${layer.size}`); // never cut
    setAttribute(this.words, "title", [does, layer.size].filter(Boolean).join(" · "));
  }

  /** @param order What the channels are sorted by. */
  show(counts: Counts, at: Values, position: number, order: string) {
    slide(
      this.channel,
      counts.channel ?? 0,
      position,
      `${this.word} ${at.channel} of ${counts.channel}`,
    );
    setText(this.number, String(at.channel));
    const by = order === "index"
      ? `of ${counts.channel}, sorted by`
      : `rank ${position + 1} of ${counts.channel} by`;
    setText(this.rank, by);
    choose(this.order, at.order);
    choose(this.shownAfter, at.shown_after);
    let several = false;
    for (const { name, made, number, root } of this.others) {
      const count = counts[name];
      const words = `${at[name]} (of 0 to ${count - 1})`;
      several ||= count > 1;
      visible(root, count > 1);
      slide(made, count, at[name], `${name} ${words}`);
      setText(number, words);
    }
    this.root.classList.toggle("hv-several", several);
  }
}

const SHOWN_AFTER: Record<string, string> = {
  output: "raw output",
  norm: "after normalization",
  activation: "after activation",
};

const ORDERS: Record<string, string> = {
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
