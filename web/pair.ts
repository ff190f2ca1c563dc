// Two runs and their difference in three columns: the input with its heatmap, and the shown map.

import { el, setAttribute, setText, shareOf, visible } from "./dom.ts";
import { heatRange, paint, put, toLevels } from "./levels.ts";
import { short } from "./numbers.ts";
import { objectId } from "./objectId.ts";
import { paintHeat } from "./overlay.ts";
import { putPicture } from "./panel.tsx";
import type { Colours } from "./colours.ts";
import type { Layer } from "./layer.ts";
import type { Range } from "./levels.ts";
import type { Heat, Picture, Source } from "./source.ts";
import type { State } from "./state.ts";

const RUNS = ["original", "edited", "difference"];

interface Side {
  data: Layer;
  heat: Heat | null;
  picture: Picture | null;
}

/** A caption and a canvas; a click chooses the position. */
class Cell {
  name = el("b", {});
  ends = el("span", { class: "hv-dim" });
  canvas = el("canvas", { class: "hv-map", role: "img", width: 1, height: 1 });
  frame = el("div", { class: "hv-frame" }, this.canvas);
  root = el("figure", {}, el("figcaption", {}, this.name, this.ends), this.frame);

  constructor(state: State) {
    this.frame.addEventListener("click", (event) => {
      const { x, y } = shareOf(event, this.frame);
      state.set({ place: [y, x] });
    });
  }

  say(name: string, range: Range | null, words: string) {
    setText(this.name, name);
    setAttribute(this.name, "title", name);
    setText(this.ends, range ? `${short(range.low)} to ${short(range.high)}` : words);
    setAttribute(this.canvas, "aria-label", `${name}: ${words}`);
  }
}

/** The columns have one set of controls, those of the view. */
export class Pair {
  heats: Cell[];
  maps: Cell[];
  root: HTMLDivElement;
  drawn = "";

  constructor(public source: Source, public state: State) {
    this.heats = RUNS.map(() => new Cell(state));
    this.maps = RUNS.map(() => new Cell(state));
    for (const { canvas } of this.heats) canvas.classList.add("hv-smooth");
    const cells = [...this.heats, ...this.maps].map(({ root }) => root);
    this.root = el("div", { class: "hv-pair hv-three" }, ...cells);
  }

  show(colours: Colours) {
    const { facts } = this.source;
    const at = this.state.values;
    const pair = facts.pair && this.source.live;
    visible(this.root, pair);
    if (!pair) return;
    const sides = RUNS.map((run): Side | null => {
      const own = { ...at, run };
      const data = this.source.layer(own);
      return data && {
        data,
        heat: this.source.heat(own, at.layer, at.targetClass),
        picture: run === "difference" ? null : this.source.picture(data.header.place, run),
      };
    });
    const key = JSON.stringify([
      sides.map((side) =>
        side && [side.data, side.heat, side.picture].map((of) => of && objectId(of))
      ),
      [at.channel, at.cmap, at.alpha, at.over_input, colours.dark, facts.run_names],
    ]);
    if (key === this.drawn || !sides.every((side) => side !== null)) return;
    this.drawn = key;
    this.drawHeats(sides, colours);
    this.drawMaps(sides, colours);
  }

  /** Both runs on one scale; the difference about zero, on its own. */
  drawMaps(sides: Side[], colours: Colours) {
    const { layer, channel, cmap } = this.state.values;
    const ends = sides.map(({ data }) =>
      ["min", "max"].map((name) => data.row("numbers", name)[channel])
    );
    const signed = sides[0].data.header.signed || sides[1].data.header.signed;
    const own = rangeOf(ends.slice(0, 2).flat(), signed);
    sides.forEach(({ data }, n) => {
      const range = n < 2 ? own : rangeOf(ends[2], true);
      const levels = toLevels(data.map("maps", channel), range);
      const automatic = n === 2 || cmap === "auto";
      const palette = colours.palette(automatic ? colours.automatic(n === 2 || signed) : cmap);
      paint(this.maps[n].canvas, levels, data.width, data.height, palette);
      this.maps[n].say(this.nameOf(n), range, `${data.word} ${channel} of ${layer}`);
    });
  }

  drawHeats(sides: Side[], colours: Colours) {
    const { alpha, over_input, heatmap } = this.state.values;
    const found = sides.map(({ heat }) => heat?.values ? heatRange(heat.values) : null);
    const both = found.slice(0, 2).flatMap((range) => range ? [range.low, range.high] : []);
    const diverging = found.slice(0, 2).some((range) => range?.diverging);
    sides.forEach(({ heat, picture }, n) => {
      const range = !found[n]
        ? null
        : n < 2
        ? rangeOf(both, diverging)
        : rangeOf([found[2]!.low, found[2]!.high], true);
      const palette = colours.palette(colours.ofHeatmap(n === 2 || diverging));
      const { canvas } = this.heats[n];
      if (heat?.values && range && (over_input || !picture)) {
        paintHeat(canvas, heat, range, palette, picture, alpha);
      } else if (picture) putPicture(canvas, picture);
      else put(canvas, new Uint8ClampedArray(4), 1, 1);
      const words = heat?.values ? `heatmap ${heatmap}` : (heat?.none ?? "");
      this.heats[n].say(this.nameOf(n), range, words);
    });
  }

  nameOf(n: number) {
    return this.source.facts.run_names[n] ?? RUNS[n];
  }
}

/** From the least to the largest, or about zero. */
function rangeOf(values: number[], diverging: boolean): Range {
  const finite = values.filter(Number.isFinite);
  const most = Math.max(...finite.map(Math.abs), 0) || 1;
  const low = diverging ? -most : Math.min(...finite, most);
  return { low, high: diverging ? most : Math.max(...finite, low + 1e-30), precision: "mixed" };
}
