// A training on a page: strips of layers × steps, and at one step a layer's histograms and maps.

import { drawDimension, isOdd, usedBins } from "./dimension.js";
import { el, menu, setText, shareOf, visible } from "./dom.js";
import { COLOURS, GAP, NAN, contextOf, paint, paletteOf } from "./levels.js";
import { short } from "./numbers.js";
import { RecordedStep } from "./recorded.js";

const SPAN = 1e3; // from the median to the first and to the last colour, at most
const WIDE = 24; // pixels that a step of the histograms over time is wide at most
const HIGH = 12; // pixels of a row of the strip, as long as there is room
const LABEL = 10; // pixels of a row's name
const LONGEST = 26; // characters of a row's name

/** @param {number} value NaN where nothing was recorded. */
function inShort(value) {
  return Number.isNaN(value) ? "–" : short(value);
}

/**
 * What the first and the last colour stand for, as `colours_of` in Python has it.
 * @param {number[]} values
 */
function spanOf(values) {
  const known = Float64Array.from(values.map(Math.abs).filter((value) => Number.isFinite(value) && value > 0)).sort();
  if (!known.length) return { least: 1, most: 1, largest: 1 };
  const at = (/** @type {number} */ place) => /** @type {number} */ (known[place]);
  const [middle, largest] = [at(known.length >> 1), at(known.length - 1)];
  return { least: Math.max(at(0), middle / SPAN), most: Math.min(largest, middle * SPAN), largest };
}

/** @type {Record<string, string>} */
const STATISTIC_NAMES = { std: "standard deviation", gradient_std: "gradient standard deviation", nans: "NaN", infs: "Inf" };

/** @param {string} name As in the records. */
const statisticName = (name) => STATISTIC_NAMES[name] ?? name.replaceAll("_", " ");

/** All that is shown. `take` gets what has been recorded since. */
export class StepsView {
  /** @param {HTMLElement} root */
  constructor(root) {
    /** @type {Map<number, RecordedStep>} */
    this.known = new Map();
    /** @type {any} */
    this.facts = null;
    this.statistic = "std";
    this.row = "";
    this.at = -1;
    this.follows = true;
    this.head = el("h2", { class: "hv-name" });
    this.words = el("span", { class: "hv-dim", role: "status" });
    this.colours = menu("what the colours are of", [], (value) => {
      this.statistic = value;
      this.draw();
    });
    this.rows = menu("which row", [], (value) => {
      this.row = value;
      this.draw();
    });
    this.trouble = el("button", { type: "button" });
    this.trouble.addEventListener("click", () => this.go(this.facts.trouble.at, this.facts.trouble.row));
    this.slider = el("input", { type: "range", min: "0", value: "0", "aria-label": "step" });
    this.slider.addEventListener("input", () => {
      this.go(this.steps[Number(this.slider.value)], this.row);
    });
    this.strip = el("canvas", { class: "hv-steps-strip", role: "img" });
    this.strip.addEventListener("click", (/** @type {MouseEvent} */ event) => this.picked(event));
    this.scaleWords = "";
    this.strip.addEventListener("pointermove", (/** @type {MouseEvent} */ event) => this.hovered(event));
    this.strip.addEventListener("pointerleave", () => setText(this.scale, this.scaleWords));
    this.first = el("span", { class: "hv-steps-first", "aria-hidden": "true" }, "×");
    this.labels = el("div", { class: "hv-dim hv-steps-labels", "aria-hidden": "true" });
    /** @type {string[]} The rows of the strip. */
    this.names = [];
    this.column = el("span", { class: "hv-steps-chosen", "aria-hidden": "true" });
    this.line = el("span", { class: "hv-steps-chosen", "aria-hidden": "true" });
    this.frame = el("div", { class: "hv-steps-frame" }, this.strip, this.column, this.line, this.first);
    this.scale = el("div", { class: "hv-dim hv-steps-scale" });
    this.numbers = el("div", { class: "hv-steps-numbers" });
    this.bars = [0, 1].map(() => el("canvas", { class: "hv-steps-bars", role: "img", width: "520", height: "120" }));
    this.barWords = [0, 1].map(() => el("div", { class: "hv-dim" }));
    this.dimensions = [0, 1].map(() => el("canvas", { class: "hv-steps-dimension", role: "img" }));
    /** @type {Record<string, Uint32Array> | null} */
    this.palettes = null;
    this.drawn = ["", ""]; // of which row and steps they are
    this.dimensionWords = [0, 1].map(() => el("div", { class: "hv-dim" }));
    for (const canvas of this.dimensions)
      canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
        this.go(this.steps[Math.floor(shareOf(event, canvas).x * this.steps.length)], this.row);
      });
    this.maps = el("canvas", { class: "hv-steps-maps", role: "img" });
    this.mapWords = el("div", { class: "hv-dim" });
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
          el("div", {}, ...[this.barWords, this.bars, this.dimensionWords, this.dimensions].map((each) => each[side] ?? "")),
        ),
        el("div", {}, this.mapWords, this.maps),
      ),
    );
  }

  /**
   * Go to a step and a row; at the last step, what comes next is followed.
   * @param {number | undefined} at
   * @param {string} row
   */
  go(at, row) {
    if (at === undefined || !this.known.has(at)) return;
    this.follows = at === this.steps[this.steps.length - 1];
    this.at = at;
    this.rows.value = this.row = row;
    this.draw();
  }

  /** @returns {number[]} The recorded steps that are here. */
  get steps() {
    return this.facts.steps.filter((/** @type {number} */ at) => this.known.has(at));
  }

  /**
   * @param {any} facts
   * @param {Array<[number, Uint8Array]>} found Steps and their bytes.
   */
  take(facts, found) {
    this.facts = facts;
    for (const [at, bytes] of found)
      this.known.set(at, new RecordedStep(facts.layouts[facts.of[facts.steps.indexOf(at)]], facts, bytes));
    const kept = new Set(facts.steps);
    for (const at of [...this.known.keys()]) if (!kept.has(at)) this.known.delete(at);
    this.palettes ??= Object.fromEntries(
      Object.entries(facts.palettes).map(([name, text]) => [name, paletteOf(/** @type {string} */ (text))]),
    );
    const names = [...new Set(facts.layouts.flatMap((/** @type {any} */ layout) => layout.rows))];
    if (this.rows.length !== names.length) {
      this.rows.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
      if (!names.includes(this.row)) this.row = names[0] ?? "";
      this.rows.value = this.row;
    }
    if (!this.colours.length) {
      const all = [...facts.statistics, "dead", ...facts.statistics.map((/** @type {string} */ s) => `gradient_${s}`), ...facts.norms];
      const shown = all.filter((name) => !name.endsWith("count"));
      this.colours.replaceChildren(...shown.map((name) => el("option", { value: name }, statisticName(name))));
      this.colours.value = this.statistic;
    }
    setText(this.head, facts.model);
    setText(this.words, facts.words);
    const { trouble } = facts;
    visible(this.trouble, Boolean(trouble) && names.includes(trouble.row));
    if (trouble) setText(this.trouble, `first NaN or Inf: step ${trouble.at}, ${trouble.row}`);
    this.draw();
  }

  draw() {
    const steps = this.steps;
    if (!steps.length) return;
    if (this.follows || !steps.includes(this.at)) this.at = steps[steps.length - 1] ?? -1;
    this.slider.max = String(steps.length - 1);
    this.slider.value = String(steps.indexOf(this.at));
    this.slider.setAttribute("aria-valuetext", `step ${this.at}`);
    this.drawStrip(steps);
    const step = /** @type {RecordedStep} */ (this.known.get(this.at));
    this.say(step);
    ["activations", "gradients"].forEach((what, side) => {
      this.drawBars(step, what, side);
      this.drawOverTime(steps, what, side);
    });
    this.drawMaps(step);
  }

  /**
   * Layers × steps, coloured by the order of magnitude; shares as they are.
   * @param {number[]} steps
   */
  drawStrip(steps) {
    const side = this.statistic.startsWith("gradient_") ? 1 : 0;
    // Where there are NaN or Inf the rest says nothing, and would set the scale.
    const value = (/** @type {RecordedStep} */ step, /** @type {string} */ name) =>
      step.wrong(name, side) ? Infinity : step.value(this.statistic, name);
    const row = (/** @type {string} */ name) => steps.map((at) => value(/** @type {any} */ (this.known.get(at)), name));
    // Layers without weights have no norms.
    const rows = [...this.rows.options].map(({ value: name }) => ({ name, values: row(name) }));
    const shown = rows.filter((each) => !each.values.every(Number.isNaN));
    const names = shown.map((each) => each.name);
    const values = shown.map((each) => each.values);
    this.names = names;
    const share = this.statistic.endsWith("zeros") || this.statistic === "dead";
    const { least, most, largest } = share ? { least: 0, most: 1, largest: 1 } : spanOf(values.flat());
    const signed = ["mean", "min", "max"].includes(this.statistic.replace("gradient_", ""));
    const palette = /** @type {any} */ (this.palettes)[signed ? "diverging" : "sequential"];
    const level = (/** @type {number} */ value) => {
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
    const [column, line] = trouble ? [steps.indexOf(trouble.at), names.indexOf(trouble.row)] : [-1, -1];
    visible(this.first, column >= 0 && line >= 0);
    this.first.style.left = `${(100 * (column + 0.5)) / steps.length}%`;
    this.first.style.top = `${(100 * (line + 0.5)) / names.length}%`;
    const what = statisticName(this.statistic);
    this.strip.setAttribute("aria-label", `${what} of ${names.length} rows in ${steps.length} recorded steps`);
    const ends = share ? "0 to 1" : `${inShort(least)} to ${inShort(most)}${signed ? ", either sign" : ""}${largest > most ? `, the largest ${inShort(largest)}` : ""}`;
    const marks = limit === undefined ? "" : `; ▲ above ${inShort(limit)} in some step`;
    this.scaleWords = `${what}: ${ends}, steps ${steps[0]} to ${steps[steps.length - 1]}; NaN and Inf magenta${marks}`;
    setText(this.scale, this.scaleWords);
  }

  /**
   * Outline a part of the strip, whose colours stay.
   * @param {HTMLElement} mark
   * @param {[number, number]} across Beginning and width, as shares of the strip.
   * @param {[number, number]} down
   */
  outline(mark, [left, wide], [top, high]) {
    visible(mark, left >= 0 && top >= 0);
    for (const [name, share] of Object.entries({ left, width: wide, top, height: high }))
      mark.style.setProperty(name, `${100 * share}%`);
  }

  /**
   * The names of the rows, or of every second or third where they are low.
   * @param {string[]} names
   * @param {boolean[]} over Which rows are above the statistic's limit.
   * @param {number} high Pixels of all.
   */
  drawLabels(names, over, high) {
    const each = Math.ceil((LABEL * names.length) / high);
    const labels = [];
    for (let start = 0; start < names.length; start += each) {
      const name = /** @type {string} */ (names[start]);
      const marked = over.slice(start, start + each).some(Boolean);
      const short = name.length > LONGEST ? `…${name.slice(1 - LONGEST)}` : name;
      const label = el("div", { title: name }, `${marked ? "▲ " : ""}${short}`);
      label.style.flexGrow = String(Math.min(each, names.length - start));
      labels.push(label);
    }
    this.labels.replaceChildren(...labels);
  }

  /**
   * The number under the pointer.
   * @param {MouseEvent} event
   */
  hovered(event) {
    const { x, y } = shareOf(event, this.strip);
    const at = this.steps[Math.floor(x * this.strip.width)];
    const name = this.names[Math.floor(y * this.strip.height)];
    if (at === undefined || name === undefined) return;
    const value = /** @type {RecordedStep} */ (this.known.get(at)).value(this.statistic, name);
    setText(this.scale, `step ${at}, ${name}: ${statisticName(this.statistic)} ${inShort(value)}`);
  }

  /** @param {MouseEvent} event */
  picked(event) {
    const { x, y } = shareOf(event, this.strip);
    const name = this.names[Math.floor(y * this.strip.height)];
    if (name !== undefined) this.go(this.steps[Math.floor(x * this.strip.width)], name);
  }

  /** @param {RecordedStep} step */
  say(step) {
    const shown = ["mean", "std", "min", "max", "zeros", "nans", "infs", "gradient_std", ...this.facts.norms];
    const told = shown.map((name) => `${statisticName(name)} ${inShort(step.value(name, this.row))}`);
    setText(this.numbers, `step ${this.at}, ${this.row}: ${told.join(" · ")}`);
  }

  /**
   * @param {RecordedStep} step
   * @param {string} what
   * @param {number} side
   */
  drawBars(step, what, side) {
    const found = step.histogram(this.row, side);
    const canvas = /** @type {HTMLCanvasElement} */ (this.bars[side]);
    const words = /** @type {HTMLElement} */ (this.barWords[side]);
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
      context.fillStyle = isOdd(place, count) ? "#ff00ff" : place <= octaves ? "#3b6fb6" : place === octaves + 1 ? "#888" : "#c0504d";
      const share = (found[place] ?? 0) / most;
      const height = share ? Math.max(2, share * canvas.height) : 0;
      context.fillRect((place - first) * wide, canvas.height - height, Math.max(1, wide - 1), height);
    }
    const ends = `${this.binName(first)} … ${this.binName(last)}`;
    setText(words, `${what}: log scale, ${ends}`);
    canvas.setAttribute("aria-label", `Histogram of ${what} of ${this.row} at step ${this.at}, ${ends}`);
  }

  /**
   * @param {number[]} steps
   * @param {string} what
   * @param {number} side
   */
  drawOverTime(steps, what, side) {
    const key = `${this.row}: ${steps}`;
    if (this.drawn[side] === key) return; // another step of the same ones is looked at
    this.drawn[side] = key;
    const canvas = /** @type {HTMLCanvasElement} */ (this.dimensions[side]);
    const words = /** @type {HTMLElement} */ (this.dimensionWords[side]);
    const found = steps.map((at) => /** @type {RecordedStep} */ (this.known.get(at)).histogram(this.row, side));
    const bins = usedBins(found);
    visible(canvas, bins !== null);
    visible(words, bins !== null);
    if (!bins) return;
    drawDimension(canvas, found, bins, /** @type {any} */ (this.palettes).sequential);
    canvas.style.maxWidth = `${WIDE * steps.length}px`;
    const ends = `${this.binName(bins.first)} at the bottom to ${this.binName(bins.last)} at the top`;
    setText(words, `${what} over the steps: log scale, brighter means more values, ${ends}`);
    canvas.setAttribute("aria-label", `Histograms of ${what} of ${this.row} in ${steps.length} steps, ${ends}`);
  }

  /**
   * Where a bin begins, toward zero.
   * @param {number} place
   */
  binName(place) {
    const { octaves, least, count } = this.facts.bins;
    if (place === 0) return "−Inf";
    if (place === count - 1) return "NaN";
    if (place === count - 2) return "Inf";
    if (place === octaves + 1) return "0";
    return place <= octaves ? `−${inShort(2 ** (least + octaves - place + 1))}` : inShort(2 ** (least + place - octaves - 1));
  }

  /** @param {RecordedStep} step */
  drawMaps(step) {
    const found = step.map(this.row);
    visible(this.maps, found !== null);
    setText(this.mapWords, found ? `the probe's first ${found.count} maps at step ${this.at}, each on its own scale` : "");
    if (!found) return;
    const { count, height, width, levels } = found;
    const across = Math.min(count, 8);
    const [wide, high] = [across * (width + 1), Math.ceil(count / across) * (height + 1)];
    const tiles = new Uint8Array(wide * high).fill(GAP);
    for (let map = 0; map < count; map++)
      for (let y = 0; y < height; y++)
        for (let x = 0; x < width; x++) {
          const to = (Math.floor(map / across) * (height + 1) + y) * wide + (map % across) * (width + 1) + x;
          tiles[to] = levels[(map * height + y) * width + x] ?? GAP;
        }
    paint(this.maps, tiles, wide, high, /** @type {any} */ (this.palettes).diverging);
    this.maps.setAttribute("aria-label", `Maps of ${this.row} at step ${this.at}`);
  }
}
