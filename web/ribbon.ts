// One cell a layer, in order: its height is the map's size, its colour the layer's health.

import { el, menu, setAttribute, setText, sure } from "./dom.ts";
import { COLOURS } from "./levels.ts";
import { middle, percent, short } from "./numbers.ts";
import { Popup } from "./popup.ts";
import type { LayerFacts } from "./messages.d.ts";

const MEASURES: Array<[string, string]> = [
  ["gradient", "size of gradients"],
  ["activation", "size of activations"],
  ["zeros", "share of zeros"],
  ["silent", "share of silent channels"],
];

/**
 * The ribbon; `onChoose` gets a layer's name, and `onRoom` is called when its width has changed.
 */
export class Ribbon {
  cells = el("div", {
    class: "hv-cells",
    role: "listbox",
    tabindex: 0,
    "aria-label": "all layers",
    "aria-orientation": "horizontal",
  });
  blocks = el("div", { class: "hv-blocks", "aria-hidden": "true" });
  measure: HTMLSelectElement;
  from = el("span");
  to = el("span");
  bar = el("i", { class: "hv-legend" });
  scale: Popup;
  sample = el("i", { class: "hv-legend" });
  root: HTMLDivElement;
  drawn = "";
  wide: number | null = null; // measured when it changes: each reading would force a layout

  constructor(
    onChoose: (name: string) => void,
    onMeasure: (measure: string) => void,
    onRoom: () => void,
  ) {
    this.measure = menu("what the colour of a layer says", MEASURES, onMeasure);
    const ends = el("span", { class: "hv-dim hv-measure" }, this.from, this.bar, this.to);
    /** The scale of the colours: a click shows its ends, and what the colours say. */
    this.scale = new Popup(
      "",
      "colours of the layers",
      el("label", { class: "hv-line" }, "colour of a layer:", this.measure),
      ends,
    );
    this.scale.button.append(this.sample);
    this.root = el("div", { class: "hv-ribbon" }, this.cells, this.blocks);
    new ResizeObserver(() => {
      this.wide = this.cells.clientWidth;
      onRoom();
    }).observe(this.cells);
    this.cells.addEventListener("click", (event: MouseEvent) => {
      const cell = (event.target as HTMLElement).closest(".hv-layer");
      if (cell instanceof HTMLElement) onChoose(cell.dataset.layer ?? "");
    });
  }

  /** @param now The shown layer. */
  show(layers: LayerFacts[], now: string, measure: string, palette: Uint32Array) {
    measure = measureOf(layers, measure);
    this.wide ??= this.cells.clientWidth;
    const room = Math.round(this.wide / 40);
    const key = `${room} ${measure} ${
      layers.map((layer) => `${layer.name} ${layer.gradient}`).join()
    }`;
    if (key !== this.drawn) {
      this.drawn = key;
      const gradient = [...this.measure.options].find(({ value }) => value === "gradient");
      sure(gradient).disabled = measureOf(layers, "gradient") !== "gradient";
      this.measure.value = measure;
      this.fill(layers, measure, palette);
    }
    for (const cell of this.cells.querySelectorAll<HTMLElement>(".hv-layer")) {
      const on = cell.dataset.layer === now;
      cell.classList.toggle("hv-on", on);
      setAttribute(cell, "aria-selected", on ? "true" : "false");
    }
  }

  fill(layers: LayerFacts[], measure: string, palette: Uint32Array) {
    const scale = scaleOf(layers, measure);
    const sides = layers.map((layer) => Math.log2(Math.max(layer.side, 1)));
    const [least, most] = [Math.min(...sides), Math.max(...sides)];
    const cells = layers.map((layer, place) => {
      const share = most > least ? (sides[place] - least) / (most - least) : 1;
      const wrong = layer.nans + layer.infs > 0;
      const cell = el("div", {
        class: `hv-layer${wrong ? " hv-wrong" : ""}`,
        role: "option",
        "data-layer": layer.name,
        "aria-label": words(layer),
        title: words(layer),
      });
      const first = place > 0 && layers[place - 1]?.block !== layer.block;
      cell.classList.toggle("hv-first", first);
      const bar = el("i");
      bar.style.height = `${10 + 20 * share}px`;
      bar.style.background = colour(palette, scale.share(layer));
      cell.append(bar);
      return cell;
    });
    this.cells.replaceChildren(...cells);
    this.blocks.replaceChildren(...blocksOf(layers, this.wide ?? 0));
    setText(this.from, scale.from);
    setText(this.to, scale.to);
    const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => colour(palette, share));
    for (const bar of [this.bar, this.sample]) {
      bar.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
    }
    const said = this.measure.selectedOptions[0]?.textContent ?? "";
    setAttribute(
      this.scale.button,
      "title",
      `colours of the layers: ${said}, ${scale.from}${
        scale.to && ` to ${scale.to}`
      }; click to choose`,
    );
  }
}

/**
 * The blocks' names, as long as there is room: of the second in a row of siblings only the end.
 * @param wide Pixels of all.
 */
function blocksOf(layers: LayerFacts[], wide: number) {
  const blocks: Array<{ name: string; count: number }> = [];
  for (const { block } of layers) {
    const last = blocks[blocks.length - 1];
    if (last?.name === block) last.count += 1;
    else blocks.push({ name: block, count: 1 });
  }
  const roomOf = (count: number) => (wide * count) / layers.length - 2;
  let pushed = 0; // pixels into this block that the label before takes
  return blocks.map(({ name, count }, place) => {
    const own = roomOf(count) - pushed;
    const lacking = LETTER * name.length - own;
    const next = blocks[place + 1];
    const nextWords = next && onlyNumber(next.name, name)
      ? siblingNumber(next.name)
      : (next?.name ?? "");
    const spare = next ? roomOf(next.count) - LETTER * nextWords.length - BESIDE : 0;
    const lent = onlyNumber(name, blocks[place - 1]?.name) || lacking <= 0 || lacking > spare
      ? 0
      : lacking + BESIDE;
    const block = el("span", { title: name }, fitting(name, blocks[place - 1]?.name, own + lent));
    block.style.flexGrow = String(count);
    if (lent) block.style.overflow = "visible";
    if (pushed) block.style.textIndent = `${pushed + 2}px`;
    pushed = lent;
    return block;
  });
}

const BESIDE = 8; // pixels between two labels

/** Whether the label of a block is only its number, as for the second of siblings. */
function onlyNumber(name: string, before: string | undefined) {
  return before !== undefined && /\d$/.test(name) && unnumbered(before) === unnumbered(name);
}

const unnumbered = (name: string) => name.replace(/\d+$/, "");

const LETTER = 6.5; // pixels, about

/**
 * What remains of the second of siblings: of "conv4_2" "4_2", as "2" alone would be taken for the second block.
 */
function siblingNumber(name: string) {
  const stem = unnumbered(name);
  return name.slice(stem.search(/\d/) < 0 ? stem.length : stem.search(/\d/));
}

/** @param room Pixels. */
function fitting(name: string, before: string | undefined, room: number) {
  const most = Math.floor(room / LETTER);
  const number = siblingNumber(name);
  if (onlyNumber(name, before)) return number.length <= most ? number : "";
  if (name.length <= most) return name;
  const last = name.slice(name.lastIndexOf(".") + 1);
  if (last !== name && last.length <= most) return last;
  return most > 5 ? middle(name, most) : ""; // a number alone would be taken for a block's
}

/** The measure that is shown: without gradients that of activations. */
export function measureOf(layers: LayerFacts[], measure: string) {
  const scored = layers.some((layer) => Number(layer.gradient) > 0);
  return measure === "gradient" && !scored ? "activation" : measure;
}

/** Where each layer stands between the least and the largest. */
export function scaleOf(layers: LayerFacts[], measure: string) {
  if (measure === "zeros") {
    const share = (layer: LayerFacts) => layer.zeros;
    return { share, from: "0 %", to: "100 %" };
  }
  if (measure === "silent") {
    const share = (
      { silent, channels }: LayerFacts,
    ) => (silent === null ? null : silent / channels);
    return { share, from: "0 %", to: "100 %" };
  }
  const size = (layer: LayerFacts) => Number(layer[measure as "gradient" | "activation"]);
  const known = layers.map(size).filter((value) => value > 0);
  if (!known.length) return { share: () => null, from: "none", to: "" };
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const span = Math.log(high) - Math.log(low) || 1;
  const share = (layer: LayerFacts) =>
    size(layer) > 0 ? (Math.log(size(layer)) - Math.log(low)) / span : null;
  return { share, from: short(low), to: short(high) };
}

export function colour(palette: Uint32Array, share: number | null) {
  if (share === null) return "var(--hv-nothing)";
  const level = Math.min(Math.floor(share * COLOURS), COLOURS - 1);
  const [r, g, b] = new Uint8Array(palette.buffer, 4 * level, 3);
  return `rgb(${r}, ${g}, ${b})`;
}

function words(layer: LayerFacts) {
  const size = (value: number | null) => (value === null ? "none" : short(value));
  const wrong = [
    ...(layer.nans ? [`${layer.nans} NaN`] : []),
    ...(layer.infs ? [`${layer.infs} infinite`] : []),
  ];
  const facts = [
    `${layer.name || "(model)"}, ${layer.kind} ${layer.size}`,
    `activation ${size(layer.activation)}`,
    `gradient ${size(layer.gradient)}`,
    `zeros ${percent(layer.zeros ?? NaN)}`,
    ...(layer.silent ? [`${layer.silent} of ${layer.channels} channels silent`] : []),
  ];
  return [...facts, ...wrong].join(", ");
}
