// The menus in the captions of the pictures and at their colour bars.

import { choose, el, menu, setAttribute, setText, visible } from "./dom.ts";
import { slider } from "./heading.ts";
import { methodName } from "./heatmaps.ts";
import { times } from "./numbers.ts";
import { asFed } from "./pictures.ts";
import { Popup } from "./popup.ts";
import type { Facts, Picture } from "./source.ts";
import type { State } from "./state.ts";

/** The input's caption: what the picture shows, and the heatmap over it. */
export class InputCaption {
  method: HTMLSelectElement;
  over: HTMLSelectElement;
  fed: HTMLSelectElement;
  said = el("p", { class: "hv-dim" });
  menu: Popup;
  with = el("span", { class: "hv-dim" }, "with");
  opacity: HTMLInputElement;
  heatMenu: Popup;
  below: HTMLSpanElement[];
  words = ""; // what the picture is
  received: { picture: Picture; made: Picture } | null = null; // as the network receives it

  constructor(facts: Facts, state: State) {
    const { heatmap } = facts.choices;
    this.method = menu(
      "heatmap",
      heatmap.map((name) => [name, methodName(facts, name)]),
      (value) => state.set({ heatmap: value }),
    );
    this.over = menu(
      "where the heatmap is shown",
      [
        ["true", "over the input"],
        ["false", "alone"],
      ],
      (value) => state.set({ over_input: value === "true" }),
    );
    this.fed = menu(
      "the input as a picture, or as the network receives it",
      [
        ["false", "as a picture"],
        ["true", "as the network receives it"],
      ],
      (value) => state.set({ fed: value === "true" }),
    );
    this.menu = new Popup("input", "about the input", this.fed, this.said);
    this.menu.button.classList.add("hv-label");
    this.opacity = slider("opacity of the heatmap", (place) => state.set({ alpha: place / 100 }));
    setAttribute(this.opacity, "title", "opacity of the heatmap; 0 shows the input alone");
    this.heatMenu = new Popup("▾", "how the heatmap is shown", this.over);
    this.below = [
      el("label", { class: "hv-opacity" }, "opacity", this.opacity),
      this.heatMenu.root,
    ];
  }

  /**
   * @param picture Null if there is none.
   * @returns The picture to show.
   */
  show(
    picture: Picture | null,
    asReceived: boolean,
    transform: Facts["transform"],
  ): Picture | null {
    for (const each of [this.menu.root, this.with]) visible(each, Boolean(picture));
    if (!picture) return null;
    const size = picture.size ? times(picture.size) : `${picture.height}×${picture.width}`;
    const fed = asReceived ? picture.fed : null;
    this.words = fed
      ? `the values that the network receives, ${fed.words}`
      : "the input, as a person sees it";
    setText(this.menu.button, fed ? "model input" : "input");
    visible(this.fed, Boolean(picture.fed));
    choose(this.fed, String(Boolean(fed)));
    const words = [
      size,
      (fed ?? picture).words ?? "",
      transform?.short ?? "",
      transform?.full ?? "",
    ].filter(Boolean).join("; ");
    setText(this.said, words);
    setAttribute(this.menu.button, "title", `about the input: ${words}`);
    setAttribute(this.menu.button, "data-kind", transform?.doubt ? "odd" : null);
    if (!fed) return picture;
    if (this.received?.picture !== picture) this.received = { picture, made: asFed(picture) };
    return this.received.made;
  }
}

/** At the colour bars of map and gradient: their colours, and the range of these. */
export class ColourMenus {
  cmap: HTMLSelectElement;
  ranges: HTMLSelectElement[];
  map: Popup;
  slope: Popup;

  constructor({ choices: { cmap, normalize } }: Facts, state: State) {
    const options = normalize.map((name): [string, string] => [name, RANGES[name] ?? name]);
    const range = (label: string) =>
      menu(label, options, (value) => state.set({ normalize: value }));
    this.cmap = menu(
      "colours",
      cmap.map((name) => [name, name]),
      (value) => state.set({ cmap: value }),
    );
    this.ranges = [range("range of the colours"), range("range of the gradient's colours")];
    const line = (words: string, control: Node) =>
      el("label", { class: "hv-line" }, el("span", {}, words), control);
    const lines = this.ranges.map((each) => line("range", each));
    const ends = () =>
      el(
        "p",
        { class: "hv-dim" },
        "Type the exact ends beside the bar, or drag over it; a double click shows the whole range.",
      );
    this.map = new Popup(
      "colours ▾",
      "colours of the feature map",
      line("colour map", this.cmap),
      ...lines.slice(0, 1),
      ends(),
    );
    this.slope = new Popup("colours ▾", "colours of the gradient", ...lines.slice(1), ends());
  }

  show({ cmap, normalize }: { cmap: string; normalize: string }) {
    choose(this.cmap, cmap);
    for (const each of this.ranges) choose(each, normalize);
  }
}

const RANGES: Record<string, string> = {
  channel: "of the channel",
  layer: "of the layer",
  network: "of the network",
  percentile: "1 to 99 %",
  symmetric: "± maximum",
};
