// Two runs and their difference in three columns: the input with its heatmap, and the shown map.

import { el, setAttribute, setText, visible } from "./dom.ts";
import { heatRange, paint, put, toLevels } from "./levels.ts";
import { short } from "./numbers.ts";
import { objectId } from "./objectId.ts";
import { blended, upsampled } from "./overlay.ts";
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
      const box = this.frame.getBoundingClientRect();
      state.set({
        place: [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width],
      });
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
      [at.channel, at.alpha, at.over_input, colours.dark, facts.run_names],
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
      const { name, canvas } = this.cell("maps", n);
      paint(canvas, levels, data.width, data.height, palette);
      this.maps[n].say(name, range, `${data.word} ${channel} of ${layer}`);
    });
  }

  drawHeats(sides: Side[], colours: Colours) {
    const { alpha, over_input, heatmap } = this.state.values;
    const found = sides.map(({ heat }) => heat?.values ? heatRange(heat.values) : null);
    const both = found.slice(0, 2).flatMap((range) => range ? [range.low, range.high] : []);
    const diverging = found.slice(0, 2).some((range) => range?.diverging);
    sides.forEach(({ heat, picture }, n) => {
      const { name, canvas } = this.cell("heats", n);
      const range = !found[n]
        ? null
        : n < 2
        ? rangeOf(both, diverging)
        : rangeOf([found[2]!.low, found[2]!.high], true);
      const [tall = 1, wide = 1] = heat?.shape ?? [];
      const palette = colours.palette(colours.ofHeatmap(n === 2 || diverging));
      if (picture) {
        const { width, height } = picture;
        const values = heat?.values && range && over_input
          ? upsampled(heat.values, tall, wide, height, width)
          : null;
        const pixels = values
          ? blended(picture.pixels, values, range, palette, alpha)
          : picture.pixels;
        put(canvas, pixels, width, height);
      } else if (heat?.values && range) {
        paint(canvas, toLevels(heat.values, range), wide, tall, palette);
      } else put(canvas, new Uint8ClampedArray(4), 1, 1);
      this.heats[n].say(name, range, heat?.values ? `heatmap ${heatmap}` : (heat?.none ?? ""));
    });
  }

  cell(which: "maps" | "heats", n: number) {
    return { name: this.source.facts.run_names[n] ?? RUNS[n], canvas: this[which][n].canvas };
  }
}

/** From the least to the largest, or about zero. */
function rangeOf(values: number[], diverging: boolean): Range {
  const known = values.filter(Number.isFinite);
  const most = Math.max(...known.map(Math.abs), 0) || 1;
  const low = diverging ? -most : Math.min(...known, most);
  return { low, high: diverging ? most : Math.max(...known, low + 1e-30), precision: "mixed" };
}
