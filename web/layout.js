// All parts of the page and where they stand; what they show is for `app.js` to say.

import { Ablation } from "./ablation.js";
import { Colourbar } from "./colourbar.js";
import { el, menu } from "./dom.js";
import { Edits } from "./edits.js";
import { Flip } from "./flip.js";
import { Heading, slider } from "./heading.js";
import { methodName } from "./heatmaps.js";
import { Mosaic } from "./mosaic.js";
import { Boxes, OutputPanel } from "./output.js";
import { Panel } from "./panel.js";
import { Predictions } from "./predictions.js";
import { presenterButton } from "./presenter.js";
import { Readings } from "./readings.js";
import { Ribbon } from "./ribbon.js";
import { Search } from "./search.js";
import { Sides } from "./sides.js";
import { Strip } from "./strip.js";

/**
 * Where a hand leads: to a class, to a place in the order of the channels, to another order; or to
 * a new drawing.
 * @typedef {{target: (number: number, minus?: boolean) => void,
 *   written: (text: string, minus: boolean) => void, position: (place: number) => void,
 *   order: (name: string) => void, again: () => void, set: (changes: any) => void,
 *   channels: () => ArrayLike<number>}} Go
 */

/** The parts, each made once. */
export class Layout {
  /**
   * @param {HTMLElement} root
   * @param {import("./app.js").Source} source
   * @param {import("./state.js").State} state
   * @param {Go} go
   */
  constructor(root, source, state, go) {
    this.state = state;
    const { facts } = source;
    const set = (/** @type {any} */ changes) => go.set(changes);
    this.chip = el("button", { class: "hv-chip", type: "button" });
    this.factsLine = el("span", { class: "hv-dim" });
    this.said = el("b", { class: "hv-said", role: "status" }); // in its place, while there is something to say
    this.title = el("b", { class: "hv-model" });
    this.predictions = new Predictions((number, minus) => go.target(number, minus));
    const hint = "any class …";
    this.anyClass = new Search("class that the gradient is of", hint, "no class is called that", (key) => go.target(Number(key)));
    if (source.write) this.anyClass.onText = (text) => go.written(text, false);
    this.ribbon = new Ribbon(
      (layer) => set({ layer }),
      (health) => set({ health }),
      go.again,
    );
    this.layers = slider("layer", (place) => set({ layer: source.facts.layers[place]?.name }));
    this.heading = new Heading(
      state,
      facts,
      go.position,
      (layer) => set({ layer }),
      go.order,
    );
    this.ablation = new Ablation(root, source, state, go.again);
    this.heading.work.append(this.ablation.root);
    this.edits = new Edits(
      (what) => source.edit(what),
      (run) => set({ shown_run: run }),
    );
    this.flip = new Flip(source, state, go.channels);
    this.edits.list.before(this.flip.root);
    this.input = new Panel(state, "input");
    this.boxes = new Boxes(this.input, source, go.written);
    this.output = new OutputPanel(state, source, go.written);
    this.map = new Panel(state, "activation");
    this.slope = new Panel(state, "gradient");
    this.heat = new Panel(state, "heat");
    for (const panel of [this.slope, this.heat]) panel.onWay = (layer) => set({ layer });
    this.bars = {
      map: new Colourbar("feature map", (ends) => set({ ends })),
      slope: new Colourbar("gradient", (ends) => set({ slopeEnds: ends })),
      heat: new Colourbar("heatmap", null),
    };
    this.mosaic = new Mosaic((channel) => set({ channel }));
    this.mosaic.onPage = go.again;
    this.sides = new Sides(source);
    this.strip = new Strip((layer) => set({ layer }));
    this.readings = new Readings();
    const same = (/** @type {string[]} */ names) =>
      names.map((name) => /** @type {[string, string]} */ ([name, name]));
    const { cmap, normalize, heatmap } = facts.choices;
    this.cmap = menu("colours", same(cmap), (value) => state.set({ cmap: value }));
    this.normalize = menu(
      "range of the colours",
      normalize.map((/** @type {string} */ name) => [name, RANGES[name] ?? name]),
      (value) => state.set({ normalize: value }),
    );
    this.map.head.append(this.cmap);
    this.bars.map.middle.append(this.normalize);
    this.bars.slope.middle.append(this.slope.side);
    this.method = menu("heatmap", heatmap.map((/** @type {string} */ name) => [name, methodName(name)]), (value) => state.set({ heatmap: value }));
    this.over = menu(
      "where the heatmap is shown",
      [
        ["true", "over input"],
        ["false", "alone"],
      ],
      (value) => state.set({ over_input: value === "true" }),
    );
    this.opacity = slider("opacity of the heatmap", (place) => state.set({ alpha: place / 100 }));
    this.stripButton = el("button", { class: "hv-toggle", title: "the heatmaps of all layers" }, "all layers");
    this.stripButton.addEventListener("click", () => this.toggleStrip());
    this.heat.head.replaceChildren(this.method, this.over);
    this.bars.heat.middle.append(this.opacity, this.stripButton);
    this.inputNote = el("div", { class: "hv-dim hv-under" });
    this.input.below.append(this.inputNote);
    const fed = "show the values that the network receives, from the smallest, black, to the largest, white";
    this.fed = el("button", { class: "hv-toggle", type: "button", title: fed }, "model input");
    this.fed.addEventListener("click", () => state.set({ fed: !state.values.fed }));
    this.input.head.append(this.fed);
    this.map.below.append(this.bars.map.root);
    this.slope.below.append(this.bars.slope.root);
    this.heat.below.append(this.bars.heat.root);
    const pictures = [this.input, this.map, this.output.panel, this.slope, this.heat].map((panel) => panel.root);
    this.pictures = el("div", { class: "hv-panels" }, ...pictures);
    this.whole = el("div", { class: "hv-map-of-layers" }, this.ribbon.root, this.layers);
    this.answers = el("div", { class: "hv-answers" }, this.predictions.root, this.anyClass.root);
    this.gone = el("div", { class: "hv-gone", role: "alert", hidden: true });
    this.titleLine = el("div", { class: "hv-title" }, this.title, this.said, this.factsLine, this.chip, this.ribbon.legend, presenterButton(root));
    this.main = el("div", { class: "hv-main" }, this.pictures, this.mosaic.root);
    root.append(
      this.gone,
      this.titleLine,
      this.answers,
      this.whole,
      this.heading.root,
      ...(source.live ? [this.edits.root] : []),
      this.main,
      this.sides.root,
      this.strip.root,
      this.readings.root,
    );
  }

  /** It opens below all else: perhaps where it cannot be seen. */
  toggleStrip() {
    this.strip.reveal = !this.state.values.all_layers;
    this.state.set({ all_layers: this.strip.reveal });
  }
}

/** @type {Record<string, string>} */
const RANGES = {
  channel: "channel",
  layer: "layer",
  network: "network",
  percentile: "1–99 %",
  symmetric: "± max",
};
