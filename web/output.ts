// The output where it is a picture: maps whose values are targets, and boxes over the input.

import { Colourbar } from "./colourbar.ts";
import { choose, el, menu, setAttribute, visible } from "./dom.ts";
import { objectId } from "./objectId.ts";
import { paint, put, toLevels } from "./levels.ts";
import { mapSize, percent, short } from "./numbers.ts";
import { Panel } from "./panel.ts";
import type { Numbers } from "./layer.ts";
import type { OutputBox, OutputMap } from "./messages.d.ts";
import type { State } from "./state.ts";
import type { Source } from "./source.ts";
import type { Colours } from "./colours.ts";
import type { Range } from "./levels.ts";

export interface Found {
  values?: Numbers;
  classes?: Numbers;
  pixels?: Numbers;
  none?: string;
}

const NAMED_CLASSES = 8; // classes that are named below a map
const MENU_CHANNELS = 300; // channels in the menu

/** A panel with one map of the output, and a menu of all. */
export class OutputPanel {
  panel: Panel;
  which: number;
  channel: number | null;
  listed = "";
  found: Found | null = null;
  menu: HTMLSelectElement;
  bar = new Colourbar("output", null);
  legend = el("div", { class: "hv-legend" });
  whole = el("button", {
    class: "hv-toggle",
    type: "button",
    title: "the mean of this map is the target; Shift+click subtracts it",
  }, "mean as target");

  constructor(
    public state: State,
    public source: Source,
    onTarget: (written: string, minus: boolean) => void,
  ) {
    this.panel = new Panel(state, "output");
    const [which, channel] = source.facts.answer?.first ?? [0, null];
    this.which = which;
    /** Null: the largest of all, or a picture's channels together. */
    this.channel = channel;
    this.menu = menu("map of the output", [], (value) => {
      const [which, channel] = value.split(" ");
      this.which = Number(which);
      this.channel = channel === "all" ? null : Number(channel);
      state.set({ hover: null, outputShown: value });
    });
    this.panel.head.append(this.menu);
    this.whole.addEventListener(
      "click",
      (event: MouseEvent) => onTarget(this.mean, event.shiftKey),
    );
    this.bar.middle.append(this.whole);
    this.panel.below.append(this.bar.root, this.legend);
    if (source.write) {
      this.panel.onPick = (u, v, minus) => {
        const written = this.written(u, v);
        if (written) onTarget(written, minus);
      };
    }
    this.panel.frame.addEventListener("keydown", (event: KeyboardEvent) => {
      const { spot } = this.state;
      if (event.key === "Enter" && spot) this.panel.onPick?.(spot.u, spot.v, event.shiftKey);
    });
    this.legend.addEventListener("click", (event: MouseEvent) => {
      const chosen = (event.target as HTMLElement).closest("button");
      if (!chosen) return;
      this.channel = Number(chosen.dataset.channel);
      state.set({ outputShown: `${this.which} ${this.channel}` });
    });
  }

  get map(): OutputMap | undefined {
    return this.source.facts.answer?.maps[this.which];
  }

  /** The value under a point, as Python writes it. */
  written(u: number, v: number) {
    const { map, found } = this;
    if (!map || !found) return "";
    const [row, column] = placeOf(map, u, v);
    const sample = this.source.facts.answer?.sample ?? 0;
    if (map.flat) return `${map.name}[${sample}, ${row}, ${column}]`;
    if (this.channel === null && map.picture) {
      return `${map.name}[${sample}, :, ${row}, ${column}].mean()`;
    }
    const channel = this.channel ?? found.classes?.values[row * map.size[1] + column];
    return `${map.name}[${sample}, ${channel}, ${row}, ${column}]`;
  }

  /** The mean of the shown channel, as Python writes it. */
  get mean() {
    const { name, flat } = this.map!;
    const sample = this.source.facts.answer?.sample ?? 0;
    return `${name}[${sample}${flat ? "" : `, ${this.channel}`}].mean()`;
  }

  show(colours: Colours) {
    const { answer } = this.source.facts;
    const maps = this.source.answer ? (answer?.maps ?? []) : [];
    visible(this.panel.root, maps.length > 0);
    if (!maps.length) return;
    this.list(maps);
    const map = this.map!;
    const whole = this.channel === null
      ? (map.picture ? "picture" : "largest")
      : map.labels[this.channel];
    this.found = this.source.answer?.(this.which, this.channel, this.state.values.sample) ?? null;
    visible(this.whole, Boolean(this.source.write));
    const alt = `output ${map.name}, ${whole}, ${mapSize(map.size)}`;
    this.panel.title(map.name, this.reading(map), alt);
    const click = this.source.write
      ? "a click makes the value the target, Shift+click subtracts it; by keyboard Enter at the chosen place"
      : "making a value the target needs the notebook";
    setAttribute(this.panel.frame, "title", click);
    if (!this.found) return this.panel.tell("on its way …");
    this.panel.tell(this.found.none ?? "");
    if (!this.found.none) this.draw(map, this.found, colours);
    return undefined;
  }

  list(maps: OutputMap[]) {
    const key = JSON.stringify(maps);
    if (key !== this.listed) {
      this.listed = key;
      const named = maps.findIndex(({ labels }) => !labels[0]?.startsWith("channel "));
      this.which = Math.max(named, 0);
      this.channel = wholeOf(maps[this.which]);
      const options = maps.flatMap(({ name, labels, picture }, which) => {
        const own = maps.length > 1 ? ` of ${name}` : "";
        const every = labels.length > 1
          ? [[`${which} all`, `${picture ? "picture" : "largest"}${own}`]]
          : [];
        return [
          ...every,
          ...labels.slice(0, MENU_CHANNELS).map((
            label,
            channel,
          ) => [`${which} ${channel}`, label + own]),
        ];
      });
      this.menu.replaceChildren(
        ...options.map(([value, text]) => el("option", { value: value }, text)),
      );
    }
    choose(this.menu, `${this.which} ${this.channel ?? "all"}`);
  }

  /** What is under the pointer, or else the map's size. */
  reading(map: OutputMap) {
    const { spot } = this.state;
    if (!spot || !this.found) return mapSize(map.size);
    const [row, column] = placeOf(map, spot.u, spot.v);
    const place = row * map.size[1] + column;
    const { values, classes } = this.found;
    const said = values
      ? short(values.values[place])
      : classes
      ? (map.labels[classes.values[place] ?? 0] ?? "")
      : "";
    return said || `row ${row}, column ${column}`;
  }

  draw(map: OutputMap, found: Found, colours: Colours) {
    const { panel } = this;
    const [height, width] = map.size;
    const { values, classes, pixels } = found;
    visible(this.bar.root, Boolean(values));
    visible(this.legend, Boolean(classes));
    const key = `${objectId(found)} ${colours.dark}`;
    if (values) {
      const range = rangeOf(values.values);
      const name = colours.automatic(range.low < 0);
      const palette = colours.palette(name);
      panel.draw(
        key,
        () => paint(panel.canvas, toLevels(values.values, range), width, height, palette),
      );
      this.bar.show(range, null, palette, name);
    } else if (classes) {
      panel.draw(key, () => {
        const counts = new Map();
        const drawn = new Uint32Array(height * width);
        for (let i = 0; i < drawn.length; i++) {
          const number = classes.values[i];
          counts.set(number, (counts.get(number) ?? 0) + 1);
          drawn[i] = colourOf(number);
        }
        put(panel.canvas, new Uint8ClampedArray(drawn.buffer), width, height);
        this.legend.replaceChildren(...legend([...counts], map, drawn.length));
      });
    } else if (pixels) {
      panel.draw(key, () => put(panel.canvas, opaque(pixels.values), width, height));
    }
    panel.place();
    this.mark(map);
  }

  /** Outline the target's values that are in this map. */
  mark(map: OutputMap) {
    const parts = (this.source.facts.target.written ?? "").split(" - ");
    const marks = [this.panel.cell, this.panel.field];
    const [height, width] = map.size;
    for (const [place, by] of marks.entries()) {
      const said = parts[place] ?? "";
      const inside = said.startsWith(`${map.name}[`)
        ? /^\[([^\]]*)\](\.mean\(\))?$/.exec(said.slice(map.name.length))
        : null;
      const indices = inside?.[1]?.split(",").map(Number) ?? [];
      const [row = NaN, column = NaN] = indices.slice(-2);
      const one = indices.length === (map.flat ? 3 : 4) && row >= 0 && column >= 0;
      const part = one && {
        u: (column + 0.5) / width,
        v: (row + 0.5) / height,
        wide: Math.max(1 / width, 0.02),
        high: Math.max(1 / height, 0.02),
      };
      this.panel.outline(part || null, by);
    }
  }
}

function wholeOf(map: OutputMap) {
  return map.labels.length > 1 ? null : 0;
}

/** Row and column under a point. */
function placeOf({ size: [height, width] }: OutputMap, u: number, v: number): [number, number] {
  return [Math.min(Math.floor(v * height), height - 1), Math.min(Math.floor(u * width), width - 1)];
}

/** From the least to the largest; signed values have zero in the middle. */
function rangeOf(values: ArrayLike<number>): Range {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return { low: 0, high: 1, precision: "mixed" };
  if (low < 0) high = Math.max(-low, high);
  return { low: low < 0 ? -high : low, high: high > low ? high : low + 1, precision: "mixed" };
}

/** A class's colour, as a pixel: hues far apart for numbers side by side. */
function colourOf(number: number) {
  const [red, green, blue] = rgbOf(number);
  return (255 << 24) | (blue << 16) | (green << 8) | red;
}

function rgbOf(number: number): [number, number, number] {
  const hue = (number * 137.508) % 360;
  const light = number % 2 ? 0.62 : 0.42;
  const strong = 0.62 * Math.min(light, 1 - light);
  const part = (shift: number) => {
    const k = (shift + hue / 30) % 12;
    return Math.round(255 * (light - strong * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}

/** The classes with the most positions. */
function legend(counts: Array<[number, number]>, map: OutputMap, whole: number) {
  return counts
    .sort((one, other) => other[1] - one[1])
    .slice(0, NAMED_CLASSES)
    .map(([number, count]) => {
      const colour = el("i", {});
      colour.style.background = `rgb(${rgbOf(number)})`;
      const name = map.labels[number] ?? String(number);
      const title = `${name}, ${percent(count / whole)} of the positions: show its values`;
      return el(
        "button",
        { class: "hv-edit", type: "button", "data-channel": number, title },
        colour,
        name,
      );
    });
}

/** RGB as RGBA. */
function opaque(pixels: ArrayLike<number>) {
  const made = new Uint8ClampedArray((pixels.length / 3) * 4).fill(255);
  for (let i = 0; i < pixels.length / 3; i++) {
    for (let part = 0; part < 3; part++) made[4 * i + part] = pixels[3 * i + part];
  }
  return made;
}

/** Boxes and keypoints over the input; a click makes a box's score the target. */
export class Boxes {
  root = el("div", { class: "hv-boxes" });
  drawn = "";

  constructor(
    public panel: Panel,
    public source: Source,
    onTarget: (written: string, minus: boolean) => void,
  ) {
    panel.frame.append(this.root);
    this.root.addEventListener("pointerdown", (event) => event.stopPropagation()); // the panel would take it
    this.root.addEventListener("pointerup", (event) => event.stopPropagation());
    this.root.addEventListener("click", (event: MouseEvent) => {
      const chosen = (event.target as HTMLElement).closest("button");
      const written = chosen?.dataset.target ?? this.boxes[Number(chosen?.dataset.place)]?.target;
      if (written && source.write) onTarget(written, event.shiftKey);
    });
  }

  get boxes(): OutputBox[] {
    return this.source.answer ? (this.source.facts.answer?.boxes ?? []) : [];
  }

  show() {
    const { boxes } = this;
    const { k, x, y } = this.panel.state.values.zoom;
    const written = (this.source.facts.target.written ?? "").split(" - ");
    const key = JSON.stringify([boxes, k, x, y, written]);
    if (key === this.drawn) return;
    this.drawn = key;
    visible(this.root, boxes.length > 0);
    const most = Math.max(...boxes.map(({ score }) => score), 1e-9);
    const share = (value: number) => `${100 * k * value}%`;
    const all = boxes.map((box, place) => {
      const [left, top, right, bottom] = box.corners;
      const words = `${box.label} ${percent(box.score)}`;
      const on = written.includes(box.target);
      const title = this.source.write
        ? `${words}: a click makes its score the target`
        : `${words}; making it the target needs the notebook`;
      const made = el("button", {
        class: "hv-box",
        type: "button",
        "data-place": place,
        title,
        "aria-pressed": on ? "true" : "false",
      });
      if (place < 5 || on) made.append(el("span", {}, words));
      made.style.left = share(left - x);
      made.style.top = share(top - y);
      made.style.width = share(right - left);
      made.style.height = share(bottom - top);
      made.style.opacity = on ? "1" : String(0.3 + (0.7 * box.score) / most);
      made.style.zIndex = String(boxes.length - place);
      return made;
    });
    const points = boxes.slice(0, 5).flatMap((box, place) =>
      box.points.map(([right, down], number) => {
        const target = box.pointTargets[number];
        const name = `keypoint ${number} of ${box.label} ${percent(box.score)}`;
        const title = this.source.write
          ? `${name}: a click makes its score the target`
          : `${name}; making it the target needs the notebook`;
        const on = written.includes(target ?? "") ? "true" : "false";
        const dot = target
          ? el("button", {
            class: "hv-point",
            type: "button",
            title,
            "data-target": target,
            "aria-pressed": on,
            tabindex: place ? -1 : 0,
          })
          : el("i", { class: "hv-point" });
        dot.style.left = share(right - x);
        dot.style.top = share(down - y);
        return dot;
      })
    );
    this.root.replaceChildren(...all.reverse(), ...points);
  }

  /** As bars, for those who do not point: the best first. */
  get bars() {
    return this.boxes.slice(0, 8).map(({ label, score }, number) => ({
      number,
      name: label,
      value: score,
      words: percent(score),
      before: null,
      change: "",
    }));
  }
}
