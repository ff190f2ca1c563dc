// A training on a page: strips of layers × steps, and at one step a layer's histograms and maps.

import { drawDimension, isOdd, usedBins } from "./dimension.ts";
import { el, menu, setText, shareOf, visible } from "./dom.ts";
import { COLOURS, contextOf, GAP, NAN, paint, paletteOf } from "./levels.ts";
import { short } from "./numbers.ts";
import { RecordedStep } from "./recorded.ts";
import type { StepsFacts } from "./recorded.ts";

const SPAN = 1e3; // from the median to the first and to the last colour, at most
const WIDE = 24; // pixels that a step of the histograms over time is wide at most
const HIGH = 12; // pixels of a row of the strip, as long as there is room
const LABEL = 10; // pixels of a row's name
const LONGEST = 26; // characters of a row's name

/** @param value NaN where nothing was recorded. */
function inShort(value: number) {
  return Number.isNaN(value) ? "–" : short(value);
}

/** What the first and the last colour stand for, as `colours_of` in Python has it. */
function spanOf(values: number[]) {
  const known = Float64Array.from(
    values.map(Math.abs).filter((value) => Number.isFinite(value) && value > 0),
  ).sort();
  if (!known.length) return { least: 1, most: 1, largest: 1 };
  const at = (place: number) => known[place];
  const [middle, largest] = [at(known.length >> 1), at(known.length - 1)];
  return { least: Math.max(at(0), middle / SPAN), most: Math.min(largest, middle * SPAN), largest };
}

const STATISTIC_NAMES: Record<string, string> = {
  std: "standard deviation",
  gradient_std: "gradient standard deviation",
  nans: "NaN",
  infs: "Inf",
};

/** @param name As in the records. */
const statisticName = (name: string) => STATISTIC_NAMES[name] ?? name.replaceAll("_", " ");

/** All that is shown. `take` gets what has been recorded since. */
export class StepsView {
  known: Map<number, RecordedStep> = new Map();
  facts!: StepsFacts; // from the first `take` on
  statistic = "std";
  row = "";
  at = -1;
  follows = true;
  head = el("h2", { class: "hv-name" });
  words = el("span", { class: "hv-dim", role: "status" });
  colours: HTMLSelectElement;
  rows: HTMLSelectElement;
  trouble = el("button", { type: "button" });
  slider = el("input", { type: "range", min: "0", value: "0", "aria-label": "step" });
  strip = el("canvas", { class: "hv-steps-strip", role: "img" });
  scaleWords = "";
  first = el("span", { class: "hv-steps-first", "aria-hidden": "true" }, "×");
  labels = el("div", { class: "hv-dim hv-steps-labels", "aria-hidden": "true" });
  /** The rows of the strip. */
  names: string[] = [];
  column = el("span", { class: "hv-steps-chosen", "aria-hidden": "true" });
  line = el("span", { class: "hv-steps-chosen", "aria-hidden": "true" });
  frame: HTMLDivElement;
  scale = el("div", { class: "hv-dim hv-steps-scale" });
  numbers = el("div", { class: "hv-steps-numbers" });
  bars = [0, 1].map(() =>
    el("canvas", { class: "hv-steps-bars", role: "img", width: "520", height: "120" })
  );
  barWords = [0, 1].map(() => el("div", { class: "hv-dim" }));
  dimensions = [0, 1].map(() => el("canvas", { class: "hv-steps-dimension", role: "img" }));
  palettes: Record<string, Uint32Array> = {};
  drawn = ["", ""]; // of which row and steps they are
  dimensionWords = [0, 1].map(() => el("div", { class: "hv-dim" }));
  maps = el("canvas", { class: "hv-steps-maps", role: "img" });
  mapWords = el("div", { class: "hv-dim" });

  constructor(root: HTMLElement) {
    this.colours = menu("what the colours are of", [], (value) => {
      this.statistic = value;
      this.draw();
    });
    this.rows = menu("which row", [], (value) => {
      this.row = value;
      this.draw();
    });
    this.trouble.addEventListener(
      "click",
      () => this.facts.trouble && this.go(this.facts.trouble.at, this.facts.trouble.row),
    );
    this.slider.addEventListener("input", () => {
      this.go(this.steps[Number(this.slider.value)], this.row);
    });
    this.strip.addEventListener("click", (event: MouseEvent) => this.picked(event));
    this.strip.addEventListener("pointermove", (event: MouseEvent) => this.hovered(event));
    this.strip.addEventListener("pointerleave", () => setText(this.scale, this.scaleWords));
    this.frame = el(
      "div",
      { class: "hv-steps-frame" },
      this.strip,
      this.column,
      this.line,
      this.first,
    );
    for (const canvas of this.dimensions) {
      canvas.addEventListener("click", (event: MouseEvent) => {
        this.go(this.steps[Math.floor(shareOf(event, canvas).x * this.steps.length)], this.row);
      });
    }
    root.replaceChildren(
      el("div", { class: "hv-line" }, this.head, this.words),
      el("div", { class: "hv-line hv-tools" }, this.colours, this.rows, this.slider, this.trouble),
      el("div", { class: "hv-steps-rows" }, this.labels, this.frame),
      this.scale,
      this.numbers,
      el(
        "div",
        { class: "hv-steps-below" },
        ...[0, 1].map((side) =>
          el(
            "div",
            {},
            this.barWords[side],
            this.bars[side],
            this.dimensionWords[side],
            this.dimensions[side],
          )
        ),
        el("div", {}, this.mapWords, this.maps),
      ),
    );
  }

  /** Go to a step and a row; at the last step, what comes next is followed. */
  go(at: number | undefined, row: string) {
    if (at === undefined || !this.known.has(at)) return;
    this.follows = at === this.steps[this.steps.length - 1];
    this.at = at;
    this.rows.value = this.row = row;
    this.draw();
  }

  /** @returns The recorded steps that are here. */
  get steps(): number[] {
    return this.facts.steps.filter((at) => this.known.has(at));
  }

  /** @param found Steps and their bytes. */
  take(facts: StepsFacts, found: Array<[number, Uint8Array]>) {
    this.facts = facts;
    for (const [at, bytes] of found) {
      this.known.set(
        at,
        new RecordedStep(facts.layouts[facts.of[facts.steps.indexOf(at)]], facts, bytes),
      );
    }
    const kept = new Set(facts.steps);
    for (const at of [...this.known.keys()]) if (!kept.has(at)) this.known.delete(at);
    this.palettes = Object.fromEntries(
      Object.entries(facts.palettes).map(([name, text]) => [name, paletteOf(text)]),
    );
    const names = [...new Set(facts.layouts.flatMap((layout) => layout.rows))];
    if (this.rows.length !== names.length) {
      this.rows.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
      if (!names.includes(this.row)) this.row = names[0];
      this.rows.value = this.row;
    }
    if (!this.colours.length) {
      const all = [
        ...facts.statistics,
        "dead",
        ...facts.statistics.map((s) => `gradient_${s}`),
        ...facts.norms,
      ];
      const shown = all.filter((name) => !name.endsWith("count"));
      this.colours.replaceChildren(
        ...shown.map((name) => el("option", { value: name }, statisticName(name))),
      );
      this.colours.value = this.statistic;
    }
    setText(this.head, facts.model);
    setText(this.words, facts.words);
    const { trouble } = facts;
    visible(this.trouble, trouble !== null && names.includes(trouble.row));
    if (trouble) setText(this.trouble, `first NaN or Inf: step ${trouble.at}, ${trouble.row}`);
    this.draw();
  }

  draw() {
    const steps = this.steps;
    if (!steps.length) return;
    if (this.follows || !steps.includes(this.at)) this.at = steps[steps.length - 1];
    this.slider.max = String(steps.length - 1);
    this.slider.value = String(steps.indexOf(this.at));
    this.slider.setAttribute("aria-valuetext", `step ${this.at}`);
    this.drawStrip(steps);
    const step = this.known.get(this.at)!;
    this.say(step);
    ["activations", "gradients"].forEach((what, side) => {
      this.drawBars(step, what, side);
      this.drawOverTime(steps, what, side);
    });
    this.drawMaps(step);
  }

  /** Layers × steps, coloured by the order of magnitude; shares as they are. */
  drawStrip(steps: number[]) {
    const side = this.statistic.startsWith("gradient_") ? 1 : 0;
    // Where there are NaN or Inf the rest says nothing, and would set the scale.
    const value = (step: RecordedStep, name: string) =>
      step.wrong(name, side) ? Infinity : step.value(this.statistic, name);
    const row = (name: string) => steps.map((at) => value(this.known.get(at)!, name));
    // Layers without weights have no norms.
    const rows = [...this.rows.options].map(({ value: name }) => ({ name, values: row(name) }));
    const shown = rows.filter((each) => !each.values.every(Number.isNaN));
    const names = shown.map((each) => each.name);
    const values = shown.map((each) => each.values);
    this.names = names;
    const share = this.statistic.endsWith("zeros") || this.statistic === "dead";
    const { least, most, largest } = share
      ? { least: 0, most: 1, largest: 1 }
      : spanOf(values.flat());
    const signed = ["mean", "min", "max"].includes(this.statistic.replace("gradient_", ""));
    const palette = this.palettes[signed ? "diverging" : "sequential"];
    const level = (value: number) => {
      if (!Number.isFinite(value)) return value === Infinity ? NAN : GAP;
      if (share) return Math.round((COLOURS - 1) * value);
      const kept = Math.min(Math.max(Math.abs(value), least), most);
      const size = Math.log(kept / least) / (Math.log(most / least) || 1);
      return Math.round((COLOURS - 1) * (signed ? 0.5 + 0.5 * Math.sign(value) * size : size));
    };
    const high = Math.min(Math.max(HIGH * names.length, 90), 420);
    this.strip.style.height = `${high}px`;
    const limit = this.facts.limits[this.statistic];
    const over = values.map((row) => limit !== undefined && row.some((each) => each > limit));
    this.drawLabels(names, over, high);
    paint(this.strip, Uint8Array.from(values.flat(), level), steps.length, names.length, palette);
    this.outline(this.column, [steps.indexOf(this.at) / steps.length, 1 / steps.length], [0, 1]);
    this.outline(this.line, [0, 1], [names.indexOf(this.row) / names.length, 1 / names.length]);
    const { trouble } = this.facts;
    const [column, line] = trouble
      ? [steps.indexOf(trouble.at), names.indexOf(trouble.row)]
      : [-1, -1];
    visible(this.first, column >= 0 && line >= 0);
    this.first.style.left = `${(100 * (column + 0.5)) / steps.length}%`;
    this.first.style.top = `${(100 * (line + 0.5)) / names.length}%`;
    const what = statisticName(this.statistic);
    this.strip.setAttribute(
      "aria-label",
      `${what} of ${names.length} rows in ${steps.length} recorded steps`,
    );
    const ends = share
      ? "0 to 1"
      : `${inShort(least)} to ${inShort(most)}${signed ? ", either sign" : ""}${
        largest > most ? `, the largest ${inShort(largest)}` : ""
      }`;
    const marks = limit === undefined ? "" : `; ▲ above ${inShort(limit)} in some step`;
    this.scaleWords = `${what}: ${ends}, steps ${steps[0]} to ${
      steps[steps.length - 1]
    }; NaN and Inf magenta${marks}`;
    setText(this.scale, this.scaleWords);
  }

  /**
   * Outline a part of the strip, whose colours stay.
   * @param across Beginning and width, as shares of the strip.
   */
  outline(mark: HTMLElement, [left, wide]: [number, number], [top, high]: [number, number]) {
    visible(mark, left >= 0 && top >= 0);
    for (const [name, share] of Object.entries({ left, width: wide, top, height: high })) {
      mark.style.setProperty(name, `${100 * share}%`);
    }
  }

  /**
   * The names of the rows, or of every second or third where they are low.
   * @param over Which rows are above the statistic's limit.
   * @param high Pixels of all.
   */
  drawLabels(names: string[], over: boolean[], high: number) {
    const each = Math.ceil((LABEL * names.length) / high);
    const labels = [];
    for (let start = 0; start < names.length; start += each) {
      const name = names[start];
      const marked = over.slice(start, start + each).some(Boolean);
      const short = name.length > LONGEST ? `…${name.slice(1 - LONGEST)}` : name;
      const label = el("div", { title: name }, `${marked ? "▲ " : ""}${short}`);
      label.style.flexGrow = String(Math.min(each, names.length - start));
      labels.push(label);
    }
    this.labels.replaceChildren(...labels);
  }

  /** The number under the pointer. */
  hovered(event: MouseEvent) {
    const { x, y } = shareOf(event, this.strip);
    const at = this.steps[Math.floor(x * this.strip.width)];
    const name = this.names[Math.floor(y * this.strip.height)];
    if (at === undefined || name === undefined) return;
    const value = this.known.get(at)!.value(this.statistic, name);
    setText(this.scale, `step ${at}, ${name}: ${statisticName(this.statistic)} ${inShort(value)}`);
  }

  picked(event: MouseEvent) {
    const { x, y } = shareOf(event, this.strip);
    const name = this.names[Math.floor(y * this.strip.height)];
    if (name !== undefined) this.go(this.steps[Math.floor(x * this.strip.width)], name);
  }

  say(step: RecordedStep) {
    const shown = [
      "mean",
      "std",
      "min",
      "max",
      "zeros",
      "nans",
      "infs",
      "gradient_std",
      ...this.facts.norms,
    ];
    const told = shown.map((name) =>
      `${statisticName(name)} ${inShort(step.value(name, this.row))}`
    );
    setText(this.numbers, `step ${this.at}, ${this.row}: ${told.join(" · ")}`);
  }

  drawBars(step: RecordedStep, what: string, side: number) {
    const found = step.histogram(this.row, side);
    const canvas = this.bars[side];
    const words = this.barWords[side];
    const bins = usedBins([found]);
    visible(canvas, bins !== null);
    if (!bins) {
      setText(words, `no ${what} here`);
      return;
    }
    const { first, last } = bins;
    const context = contextOf(canvas);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const most = Math.max(...found);
    const wide = canvas.width / (last - first + 1);
    const { octaves, count } = this.facts.bins;
    for (let place = first; place <= last; place++) {
      context.fillStyle = isOdd(place, count)
        ? "#ff00ff"
        : place <= octaves
        ? "#3b6fb6"
        : place === octaves + 1
        ? "#888"
        : "#c0504d";
      const share = found[place] / most;
      const height = share ? Math.max(2, share * canvas.height) : 0;
      context.fillRect(
        (place - first) * wide,
        canvas.height - height,
        Math.max(1, wide - 1),
        height,
      );
    }
    const ends = `${this.binName(first)} … ${this.binName(last)}`;
    setText(words, `${what}: log scale, ${ends}`);
    canvas.setAttribute(
      "aria-label",
      `Histogram of ${what} of ${this.row} at step ${this.at}, ${ends}`,
    );
  }

  drawOverTime(steps: number[], what: string, side: number) {
    const key = `${this.row}: ${steps}`;
    if (this.drawn[side] === key) return; // another step of the same ones is looked at
    this.drawn[side] = key;
    const canvas = this.dimensions[side];
    const words = this.dimensionWords[side];
    const found = steps.map((at) => this.known.get(at)!.histogram(this.row, side));
    const bins = usedBins(found);
    visible(canvas, bins !== null);
    visible(words, bins !== null);
    if (!bins) return;
    drawDimension(canvas, found, bins, this.palettes.sequential);
    canvas.style.maxWidth = `${WIDE * steps.length}px`;
    const ends = `${this.binName(bins.first)} at the bottom to ${
      this.binName(bins.last)
    } at the top`;
    setText(words, `${what} over the steps: log scale, brighter means more values, ${ends}`);
    canvas.setAttribute(
      "aria-label",
      `Histograms of ${what} of ${this.row} in ${steps.length} steps, ${ends}`,
    );
  }

  /** Where a bin begins, toward zero. */
  binName(place: number) {
    const { octaves, least, count } = this.facts.bins;
    if (place === 0) return "−Inf";
    if (place === count - 1) return "NaN";
    if (place === count - 2) return "Inf";
    if (place === octaves + 1) return "0";
    return place <= octaves
      ? `−${inShort(2 ** (least + octaves - place + 1))}`
      : inShort(2 ** (least + place - octaves - 1));
  }

  drawMaps(step: RecordedStep) {
    const found = step.map(this.row);
    visible(this.maps, found !== null);
    setText(
      this.mapWords,
      found
        ? `the probe's first ${found.count} maps at step ${this.at}, each on its own scale`
        : "",
    );
    if (!found) return;
    const { count, height, width, levels } = found;
    const across = Math.min(count, 8);
    const [wide, high] = [across * (width + 1), Math.ceil(count / across) * (height + 1)];
    const tiles = new Uint8Array(wide * high).fill(GAP);
    for (let map = 0; map < count; map++) {
      for (let y = 0; y < height; y++) {
        for (let x = 0; x < width; x++) {
          const to = (Math.floor(map / across) * (height + 1) + y) * wide +
            (map % across) * (width + 1) + x;
          tiles[to] = levels[(map * height + y) * width + x];
        }
      }
    }
    paint(this.maps, tiles, wide, high, this.palettes.diverging);
    this.maps.setAttribute("aria-label", `Maps of ${this.row} at step ${this.at}`);
  }
}
