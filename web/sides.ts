// A target that is a difference: both sides' heatmaps and their difference, on one scale.

import { el, setAttribute, setText, sure, visible } from "./dom.ts";
import { paint, put, toLevels } from "./levels.ts";
import { short } from "./numbers.ts";
import { methodName } from "./heatmaps.ts";
import { objectId } from "./objectId.ts";
import { blended, upsampled } from "./overlay.ts";
import type { Numbers } from "./layer.ts";
import type { Range } from "./levels.ts";
import type { Source } from "./source.ts";
import type { Colours } from "./colours.ts";
import type { Picture } from "./source.ts";
import type { Values } from "./state.ts";

export interface Found {
  first?: Numbers;
  second?: Numbers;
  method?: string;
  none?: string;
}

/** Three pictures beside each other. */
export class Sides {
  label = el("div", { class: "hv-cap" });
  three: {
    canvas: HTMLCanvasElement;
    name: HTMLElement;
    ends: HTMLSpanElement;
    root: HTMLElement;
  }[];
  row: HTMLDivElement;
  root: HTMLDivElement;
  drawn = "";

  constructor(public source: Source) {
    this.three = [0, 1, 2].map(() => {
      const canvas = el("canvas", { class: "hv-smooth", role: "img", width: 1, height: 1 });
      const name = el("b", {});
      const ends = el("span", { class: "hv-dim" });
      const root = el("figure", {}, el("figcaption", {}, name, ends), canvas);
      return { canvas, name, ends, root };
    });
    this.row = el("div", { class: "hv-three" }, ...this.three.map(({ root }) => root));
    this.root = el("div", { class: "hv-strip hv-sides" }, this.label, this.row);
  }

  show(at: Values, picture: Picture | null, colours: Colours) {
    const { sides: names } = this.source.facts;
    const shown = Boolean(names && this.source.sides);
    visible(this.root, shown);
    if (!shown) return;
    const found = this.source.sides?.(at) ?? null;
    const ready = found?.first && found.second;
    visible(this.row, Boolean(ready));
    if (!ready) return setText(this.label, found?.none || "both sides: on their way …");
    const other = found.method === at.heatmap
      ? ""
      : ` (${methodName(this.source.facts, at.heatmap)} is not of two sides)`;
    setText(
      this.label,
      `${found.method}${other}: both sides of the target and their difference, on one scale`,
    );
    this.draw(found, sure(names), at, picture, colours);
    return undefined;
  }

  draw(
    found: Found,
    names: [string, string],
    at: Values,
    picture: Picture | null,
    colours: Colours,
  ) {
    const over = at.over_input && picture;
    const key = `${objectId(found)} ${
      over ? `${objectId(picture)} ${at.alpha}` : "alone"
    } ${colours.dark} ${names}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const first: number[] = Array.from(found.first?.values ?? []);
    const second: number[] = Array.from(found.second?.values ?? []);
    const maps = [first, second, first.map((value, place) => value - second[place])];
    const [tall, wide] = found.first?.shape ?? [0, 0];
    const most = Math.max(...maps.flatMap((map) => map.filter(Number.isFinite).map(Math.abs)), 0) ||
      1;
    const titles = [names[0], names[1], `${names[0]} − ${names[1]}`];
    for (const [place, { canvas, name, ends }] of this.three.entries()) {
      const map = maps[place];
      const diverging = place === 2 || map.some((value) => value < 0);
      const range: Range = { low: diverging ? -most : 0, high: most, precision: "mixed" };
      const palette = colours.palette(colours.ofHeatmap(diverging));
      const title = titles[place] ?? "";
      setText(name, title);
      setAttribute(name, "title", title);
      setText(ends, `${short(range.low)} to ${short(most)}`);
      setAttribute(
        canvas,
        "aria-label",
        `heatmap ${found.method} of ${title}, layer ${at.layer || "(model)"}`,
      );
      if (over) {
        const values = upsampled(map, tall, wide, picture.height, picture.width);
        put(
          canvas,
          blended(picture.pixels, values, range, palette, at.alpha),
          picture.width,
          picture.height,
        );
      } else paint(canvas, toLevels(map, range), wide, tall, palette);
    }
  }
}
