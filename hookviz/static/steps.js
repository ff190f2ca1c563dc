// A training on a page: strips of layers × steps, and at one step a layer's histograms and maps.

import { el, menu, say, visible } from "./dom.js";
import { fromBase64 } from "./levels.js";
import { short } from "./numbers.js";

const WIDE = 24; // pixels that a step is wide at most

/** @param {number} value NaN where nothing was recorded. */
function inShort(value) {
  return Number.isNaN(value) ? "–" : short(value);
}

/** One recorded step: its arrays, as they follow each other in the bytes. */
class RecordedStep {
  /**
   * @param {any} layout
   * @param {any} facts
   * @param {Uint8Array} bytes
   */
  constructor(layout, facts, bytes) {
    this.layout = layout;
    const own = bytes.slice().buffer; // aligned, as typed arrays ask
    const rows = layout.rows.length;
    let at = 0;
    const next = (/** @type {any} */ Kind, /** @type {number} */ count) => {
      const made = new Kind(own, at, count);
      at += made.byteLength;
      return made;
    };
    this.statistics = next(Float32Array, rows * 2 * facts.statistics.length);
    this.weights = next(Float32Array, layout.weighted.length * facts.norms.length);
    const ends = layout.maps.reduce((/** @type {number} */ sum, /** @type {any} */ map) => sum + 2 * map[1], 0);
    this.ends = next(Float32Array, ends);
    this.bins = next(Uint16Array, rows * 2 * facts.bins.count);
    this.maps = new Uint8Array(own, at);
    this.facts = facts;
  }

  /**
   * @param {string} name
   * @param {string} row
   */
  value(name, row) {
    const { statistics, norms } = this.facts;
    if (norms.includes(name)) {
      const place = this.layout.weighted.indexOf(row);
      return place < 0 ? NaN : this.weights[place * norms.length + norms.indexOf(name)];
    }
    const side = name.startsWith("gradient_") ? 1 : 0;
    const place = this.layout.rows.indexOf(row);
    const which = statistics.indexOf(side ? name.slice(9) : name);
    return place < 0 ? NaN : this.statistics[(2 * place + side) * statistics.length + which];
  }

  /**
   * How many values are in each bin.
   * @param {string} row
   * @param {number} side
   */
  histogram(row, side) {
    const { count } = this.facts.bins;
    const place = this.layout.rows.indexOf(row);
    if (place < 0) return new Float32Array(count);
    const start = (2 * place + side) * count;
    const upper = Uint32Array.from(this.bins.subarray(start, start + count), (half) => half << 16);
    return new Float32Array(upper.buffer);
  }

  /**
   * The probe's maps of a layer: how many, how large, and their levels.
   * @param {string} layer
   */
  map(layer) {
    let at = 0;
    for (const [name, count, height, width] of this.layout.maps) {
      const size = count * height * width;
      if (name === layer) return { count, height, width, levels: this.maps.subarray(at, at + size) };
      at += size;
    }
    return null;
  }
}

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
    this.slider = el("input", { type: "range", min: "0", value: "0", "aria-label": "step" });
    this.slider.addEventListener("input", () => {
      this.follows = Number(this.slider.value) === this.steps.length - 1;
      this.at = this.steps[Number(this.slider.value)];
      this.draw();
    });
    this.strip = el("canvas", { class: "hv-steps-strip", role: "img" });
    this.strip.addEventListener("click", (/** @type {MouseEvent} */ event) => this.picked(event));
    this.scale = el("div", { class: "hv-dim hv-steps-scale" });
    this.numbers = el("div", { class: "hv-steps-numbers" });
    this.bars = [0, 1].map(() => el("canvas", { class: "hv-steps-bars", role: "img", width: "520", height: "120" }));
    this.barWords = [0, 1].map(() => el("div", { class: "hv-dim" }));
    this.maps = el("canvas", { class: "hv-steps-maps", role: "img" });
    this.mapWords = el("div", { class: "hv-dim" });
    root.replaceChildren(
      el("div", { class: "hv-line" }, this.head, this.words),
      el("div", { class: "hv-line hv-tools" }, this.colours, this.rows, this.slider),
      this.strip,
      this.scale,
      this.numbers,
      el(
        "div",
        { class: "hv-steps-below" },
        ...[0, 1].map((side) => el("div", {}, this.barWords[side], this.bars[side])),
        el("div", {}, this.mapWords, this.maps),
      ),
    );
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
    this.palettes = Object.fromEntries(
      Object.entries(facts.palettes).map(([name, text]) => [name, fromBase64(/** @type {string} */ (text))]),
    );
    const names = [...new Set(facts.layouts.flatMap((/** @type {any} */ layout) => layout.rows))];
    if (this.rows.length !== names.length) {
      this.rows.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
      if (!names.includes(this.row)) this.row = names[0] ?? "";
      this.rows.value = this.row;
    }
    if (!this.colours.length) {
      const all = [...facts.statistics, ...facts.statistics.map((/** @type {string} */ s) => `gradient_${s}`), ...facts.norms];
      const shown = all.filter((name) => !name.endsWith("count"));
      this.colours.replaceChildren(...shown.map((name) => el("option", { value: name }, name.replaceAll("_", " "))));
      this.colours.value = this.statistic;
    }
    say(this.head, facts.model);
    say(this.words, facts.words);
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
    const step = /** @type {RecordedStep} */ (this.known.get(this.at));
    this.say(step);
    ["activations", "gradients"].forEach((what, side) => this.drawBars(step, what, side));
    this.drawMaps(step);
  }

  /**
   * Layers × steps, coloured by the order of magnitude; shares as they are.
   * @param {number[]} steps
   */
  drawStrip(steps) {
    const names = [...this.rows.options].map((option) => option.value);
    const values = names.map((name) => steps.map((at) => this.known.get(at)?.value(this.statistic, name) ?? NaN));
    const share = this.statistic.endsWith("zeros");
    const known = values.flat().map(Math.abs).filter((value) => Number.isFinite(value) && value > 0);
    const most = share ? 1 : known.length ? known.reduce((a, b) => Math.max(a, b)) : 1;
    const least = share ? 0 : Math.max(known.length ? known.reduce((a, b) => Math.min(a, b)) : 1, most * 1e-6);
    const signed = ["mean", "min", "max"].includes(this.statistic.replace("gradient_", ""));
    const palette = /** @type {any} */ (this.palettes)[signed ? "diverging" : "sequential"];
    const level = (/** @type {number} */ value) => {
      if (!Number.isFinite(value)) return -1;
      if (share) return Math.round(255 * value);
      const size = Math.log(Math.max(Math.abs(value), least) / least) / (Math.log(most / least) || 1);
      return Math.round(signed ? 127.5 + 127.5 * Math.sign(value) * size : 255 * size);
    };
    const wrong = (/** @type {string} */ name, /** @type {number} */ at) => {
      const side = this.statistic.startsWith("gradient_") ? "gradient_" : "";
      const step = this.known.get(at);
      return step && step.value(`${side}nans`, name) + step.value(`${side}infs`, name) > 0;
    };
    this.strip.width = steps.length;
    this.strip.height = names.length;
    this.strip.style.maxWidth = `${WIDE * steps.length}px`;
    this.strip.style.height = `${Math.min(Math.max(6 * names.length, 90), 360)}px`;
    const pixels = new ImageData(steps.length, names.length);
    values.forEach((line, y) =>
      line.forEach((value, x) => {
        const bad = wrong(names[y], steps[x]);
        const from = level(value);
        const colour = bad ? [255, 0, 255, 255] : from < 0 ? [0, 0, 0, 0] : palette.subarray(4 * from, 4 * from + 4);
        pixels.data.set(colour, 4 * (y * steps.length + x));
      }),
    );
    const context = this.strip.getContext("2d");
    context.putImageData(pixels, 0, 0);
    const x = steps.indexOf(this.at);
    const y = names.indexOf(this.row);
    context.fillStyle = "#ff8c0070";
    context.fillRect(x, 0, 1, names.length);
    if (names.length > 1) context.fillRect(0, y, steps.length, 1);
    const what = this.statistic.replaceAll("_", " ");
    this.strip.setAttribute("aria-label", `${what} of ${names.length} rows in ${steps.length} recorded steps`);
    const ends = share ? "0 to 1" : `${inShort(least)} to ${inShort(most)}${signed ? ", either sign" : ""}`;
    say(this.scale, `${what}: ${ends}, steps ${steps[0]} to ${steps[steps.length - 1]}; NaN and Inf magenta`);
  }

  /** @param {MouseEvent} event */
  picked(event) {
    const box = this.strip.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * this.strip.width);
    const y = Math.floor(((event.clientY - box.top) / box.height) * this.strip.height);
    const at = this.steps[x];
    const option = this.rows.options[y];
    if (at === undefined || !option) return;
    this.at = at;
    this.follows = x === this.steps.length - 1;
    this.rows.value = this.row = option.value;
    this.draw();
  }

  /** @param {RecordedStep} step */
  say(step) {
    const shown = ["mean", "std", "min", "max", "zeros", "nans", "infs", "gradient_std", ...this.facts.norms];
    const told = shown.map((name) => `${name.replaceAll("_", " ")} ${inShort(step.value(name, this.row))}`);
    say(this.numbers, `step ${this.at}, ${this.row}: ${told.join(" · ")}`);
  }

  /**
   * @param {RecordedStep} step
   * @param {string} what
   * @param {number} side
   */
  drawBars(step, what, side) {
    const found = step.histogram(this.row, side);
    const total = found.reduce((a, b) => a + b, 0);
    const canvas = this.bars[side];
    visible(canvas, total > 0);
    if (!total) {
      say(this.barWords[side], `no ${what} here`);
      return;
    }
    const used = [...found.keys()].filter((place) => found[place] > 0);
    const [first, last] = [used[0], used[used.length - 1]];
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    const most = Math.max(...found);
    const wide = canvas.width / (last - first + 1);
    const { octaves, least, count } = this.facts.bins;
    for (let place = first; place <= last; place++) {
      const odd = place === 0 || place >= count - 2;
      context.fillStyle = odd ? "#ff00ff" : place <= octaves ? "#3b6fb6" : place === octaves + 1 ? "#888" : "#c0504d";
      const height = found[place] ? Math.max(2, (found[place] / most) * canvas.height) : 0;
      context.fillRect((place - first) * wide, canvas.height - height, Math.max(1, wide - 1), height);
    }
    const named = (/** @type {number} */ place) => {
      if (place === 0) return "−Inf";
      if (place === count - 1) return "NaN";
      if (place === count - 2) return "Inf";
      if (place === octaves + 1) return "0";
      return place <= octaves ? `−${inShort(2 ** (least + octaves - place + 1))}` : inShort(2 ** (least + place - octaves - 1));
    };
    const ends = `${named(first)} … ${named(last)}`;
    say(this.barWords[side], `${what}: values by powers of two, ${ends}`);
    canvas.setAttribute("aria-label", `Histogram of ${what} of ${this.row} at step ${this.at}, ${ends}`);
  }

  /** @param {RecordedStep} step */
  drawMaps(step) {
    const found = step.map(this.row);
    visible(this.maps, found !== null);
    say(this.mapWords, found ? `the probe's first ${found.count} maps at step ${this.at}, each on its own scale` : "");
    if (!found) return;
    const { count, height, width, levels } = found;
    const across = Math.min(count, 8);
    const [wide, high] = [across * (width + 1), Math.ceil(count / across) * (height + 1)];
    const palette = /** @type {any} */ (this.palettes).diverging;
    const pixels = new ImageData(wide, high);
    for (let map = 0; map < count; map++)
      for (let y = 0; y < height; y++)
        for (let x = 0; x < width; x++) {
          const level = levels[(map * height + y) * width + x];
          const to = (Math.floor(map / across) * (height + 1) + y) * wide + (map % across) * (width + 1) + x;
          pixels.data.set(palette.subarray(4 * level, 4 * level + 4), 4 * to);
        }
    [this.maps.width, this.maps.height] = [wide, high];
    this.maps.getContext("2d").putImageData(pixels, 0, 0);
    this.maps.setAttribute("aria-label", `Maps of ${this.row} at step ${this.at}`);
  }
}
