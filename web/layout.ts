// All parts of the page and their arrangement; `app.ts` decides what they show.

import { Ablation } from "./ablation.ts";
import { ColourMenus, InputCaption } from "./captions.ts";
import { Colourbar } from "./colourbar.ts";
import { el, sure } from "./dom.ts";
import { Drawers } from "./drawers.ts";
import { Edits } from "./edits.ts";
import { Flip } from "./flip.ts";
import { Heading, slider } from "./heading.ts";
import { Mosaic } from "./mosaic.ts";
import { Boxes, OutputPanel } from "./output.ts";
import { Panel } from "./panel.ts";
import { Pair } from "./pair.ts";
import { Popup } from "./popup.ts";
import { Predictions } from "./predictions.ts";
import { Readings } from "./readings.ts";
import { Ribbon } from "./ribbon.ts";
import { Search } from "./search.ts";
import { Sides } from "./sides.ts";
import { Strip } from "./strip.ts";
import type { Source } from "./source.ts";
import type { State, Values } from "./state.ts";

/**
 * What the controls do: choose a class, a position in the order of the channels or another order,
 * change settings, or draw again.
 */
export interface Go {
  target: (number: number, minus?: boolean) => void;
  written: (text: string, minus: boolean) => void;
  position: (place: number) => void;
  order: (name: string) => void;
  again: () => void;
  set: (changes: Partial<Values>) => void;
  channels: () => ArrayLike<number>;
}

/** The parts, each made once. */
export class Layout {
  gone = el("div", { class: "hv-gone", role: "alert", hidden: true });
  // The header
  title = el("b", { class: "hv-model" });
  factsLine = el("span", { class: "hv-dim hv-facts" });
  said = el("b", { class: "hv-said", role: "status" }); // replaces the facts while there is a message
  details = el("p", {});
  toTrouble = el("button", { type: "button", class: "hv-toggle" });
  chip: Popup;
  buttons = el("span", { class: "hv-tools-of-view" });
  titleLine: HTMLDivElement;
  ribbon: Ribbon;
  layers: HTMLInputElement;
  whole: HTMLDivElement;
  heading: Heading;
  ablation: Ablation;
  layerRow: HTMLDivElement;
  input: Panel;
  boxes: Boxes;
  map: Panel;
  slope: Panel;
  bars: { map: Colourbar; slope: Colourbar; heat: Colourbar };
  mosaic: Mosaic;
  caption: InputCaption;
  colourMenus: ColourMenus;
  predictions: Predictions;
  anyClass: Search;
  fromOutput = el("button", {
    type: "button",
    class: "hv-from-output",
    title: "choose a value of the output as the target",
  }, "output …");
  predicted: HTMLDivElement;
  answers: HTMLDivElement;
  readings = new Readings();
  main: HTMLDivElement;
  output: OutputPanel;
  sides: Sides;
  pair: Pair;
  strip: Strip;
  edits: Edits;
  flip: Flip;
  editing: HTMLDivElement;
  otherPictures: HTMLDivElement;
  drawers = new Drawers();

  constructor(public root: HTMLElement, source: Source, state: State, go: Go) {
    const { facts } = source;
    const set = (changes: Partial<Values>) => go.set(changes);

    this.chip = new Popup("", "the network's health", this.details, this.toTrouble);
    this.chip.button.classList.add("hv-chip");
    this.toTrouble.addEventListener("click", () => {
      this.chip.close();
      set({ layer: sure(source.facts.verdict.layer) }); // hidden if there is none
    });
    this.titleLine = el(
      "div",
      { class: "hv-title hv-header" },
      this.title,
      this.said,
      this.factsLine,
      this.chip.root,
      this.buttons,
    );

    // Layer and channel
    this.ribbon = new Ribbon(
      (layer) => set({ layer }),
      (health) => set({ health }),
      go.again,
    );
    this.layers = slider("layer", (place) => set({ layer: source.facts.layers[place]?.name }));
    this.whole = el("div", { class: "hv-map-of-layers" }, this.ribbon.root, this.layers);
    this.heading = new Heading(
      state,
      facts,
      go.position,
      (layer) => set({ layer }),
      go.order,
    );
    this.ablation = new Ablation(root, source, state, go.again);
    this.heading.work.append(this.ablation.root);
    const layerName = el(
      "div",
      { class: "hv-dim hv-row-name" },
      el("span", {}, "layer"),
      this.ribbon.scale.root,
    );
    this.layerRow = el(
      "div",
      { class: "hv-row hv-layer-row" },
      layerName,
      this.whole,
      this.heading.layerSide,
      this.heading.layerEnd,
    );

    // The four columns
    this.input = new Panel(state, "input");
    this.boxes = new Boxes(this.input, source, go.written);
    this.map = new Panel(state, "activation");
    this.slope = new Panel(state, "gradient");
    for (const panel of [this.slope, this.input]) panel.onWay = (layer) => set({ layer });
    this.bars = {
      map: new Colourbar("feature map", (ends) => set({ ends })),
      slope: new Colourbar("gradient", (ends) => set({ slopeEnds: ends })),
      heat: new Colourbar("heatmap", null),
    };
    this.mosaic = new Mosaic((channel) => set({ channel }));
    this.mosaic.onPage = go.again;
    this.caption = new InputCaption(facts, state);
    this.input.head.replaceChildren(this.caption.menu.root, this.caption.with, this.caption.method);
    this.bars.heat.middle.append(...this.caption.below);
    this.colourMenus = new ColourMenus(facts, state);
    this.bars.map.middle.append(this.colourMenus.map.root);
    this.bars.slope.middle.append(this.slope.side, this.colourMenus.slope.root);
    this.map.head.append(this.heading.shownAfter);
    this.input.below.append(this.bars.heat.root);
    this.map.below.append(this.bars.map.root);
    this.slope.below.append(this.bars.slope.root);
    this.predictions = new Predictions((number, minus) => go.target(number, minus));
    const hint = "another class …";
    this.anyClass = new Search(
      "class that the gradient is of",
      hint,
      "no class is called that",
      (key) => go.target(Number(key)),
    );
    if (source.write) this.anyClass.onText = (text) => go.written(text, false);
    this.fromOutput.addEventListener("click", () => this.drawers.toggle("pictures"));
    const does = source.live || !source.gone ? "click to explain" : "";
    this.predicted = el(
      "div",
      { class: "hv-dim hv-over-list" },
      el("span", {}, "prediction"),
      el("span", {}, does),
    );
    this.answers = el(
      "div",
      { class: "hv-answers" },
      this.predicted,
      this.predictions.root,
      this.anyClass.root,
      this.fromOutput,
    );
    const panels = [this.input, this.map, this.slope].map((panel) => panel.root);
    this.main = el(
      "div",
      { class: "hv-main" },
      ...panels,
      this.mosaic.root,
      this.answers,
      this.readings.root,
    );

    // What is below the pictures
    this.output = new OutputPanel(state, source, go.written);
    this.sides = new Sides(source);
    this.pair = new Pair(source, state);
    this.strip = new Strip((layer) => set({ layer }));
    this.edits = new Edits(
      (what) => source.edit(what),
      (run) => set({ shown_run: run }),
    );
    this.flip = new Flip(source, state, go.channels);
    this.edits.first.append(this.flip.root);
    this.editing = el("div", {}, this.edits.root);
    this.otherPictures = el("div", { class: "hv-other-pictures" }, this.output.panel.root);
    this.drawers.onOpen = (name) => {
      source.opened = name;
      state.set({ all_layers: name === "heatmaps" });
    };
    state.onChange((changed) => {
      if (!changed.has("all_layers")) return;
      const shown = this.drawers.open === "heatmaps";
      if (shown !== state.values.all_layers) this.drawers.go(shown ? "" : "heatmaps");
    });
    root.append(
      this.gone,
      this.titleLine,
      this.layerRow,
      this.heading.root,
      this.pair.root,
      this.main,
      this.sides.root,
      this.drawers.root,
    );
  }
}
