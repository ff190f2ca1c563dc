// One layer's numbers, as they came from the kernel or out of the page.

import { colourRanges } from "./levels.js";
import { short } from "./numbers.js";

/**
 * @typedef {{shape: number[], values: any, approximate?: boolean, scale?: number}} Numbers
 * @typedef {{maps: Numbers, numbers: Numbers, gradient_numbers: Numbers, orders: Numbers, weights: Numbers,
 *   percentiles: Numbers, flat?: Numbers, gradients?: Numbers, beside?: Numbers, queries?: Numbers,
 *   ablation_scores?: Numbers}} Arrays What a layer's header says it has.
 * @typedef {import("./levels.js").Range} Range
 */

const ROWS = ["min", "max", "mean", "zeros", "norm", "nans", "infs"];

/** Maps, gradients and statistics of one layer, call, sample and depth. */
export class Layer {
  /**
   * @param {any} header
   * @param {Arrays} arrays
   * @param {string[]} orders
   * @param {number[][]} network Least and largest value of all layers' maps, and gradients.
   */
  constructor(header, arrays, orders, network) {
    this.network = network;
    this.header = header;
    this.arrays = arrays;
    this.orders = orders;
    const shape = arrays.maps?.shape ?? [arrays.numbers.shape[1], 0, 0];
    const [count, height, width] = /** @type {[number, number, number]} */ (shape);
    this.count = count;
    this.height = height;
    this.width = width;
    /** @type {Map<string, any>} */
    this.made = new Map();
  }

  /** What a channel is called here: a head where the layer is attention. */
  get word() {
    return this.header.word ?? "channel";
  }

  /**
   * What a head's query looks at beside the patches; empty if there is nothing else.
   * @param {number} channel
   */
  beside(channel) {
    const { query, beside } = this.header;
    if (!query || !beside?.length || !this.arrays.beside) return "";
    const { values } = this.arrays.beside;
    const weights = beside.map(
      (/** @type {string} */ name, /** @type {number} */ place) =>
        `weight ${short(values[channel * beside.length + place])} on ${name}`,
    );
    return `Head ${channel}, query ${query}: ${weights.join(", ")}.`;
  }

  /** The channel with the largest sum of activation × gradient; null if there is none. */
  get strongest() {
    const { maps, gradients } = this.arrays;
    if (!gradients) return null;
    return this.once("strongest", () => {
      const size = this.height * this.width;
      let [best, most] = [/** @type {number | null} */ (null), -Infinity];
      let any = false;
      for (let channel = 0; channel < this.count; channel++) {
        let sum = 0;
        for (let i = channel * size; i < (channel + 1) * size; i++) sum += maps.values[i] * gradients.values[i];
        any ||= sum !== 0;
        if (sum > most) [best, most] = [channel, sum];
      }
      return any ? best : null;
    });
  }

  /** Whether there is a gradient of every place. */
  get graded() {
    return Boolean(this.arrays.gradients);
  }

  /** Whether the numbers are doubles. */
  get double() {
    return this.arrays.numbers.values instanceof Float64Array;
  }

  /** How many bytes it holds. */
  get bytes() {
    return Object.values(this.arrays).reduce((sum, each) => sum + each.values.byteLength, 0);
  }

  /**
   * A channel's values; a view, not a copy.
   * @param {"maps" | "gradients"} which
   * @param {number} channel
   */
  map(which, channel) {
    const { shape, values } = /** @type {Numbers} */ (this.arrays[which]);
    const [, height, width] = /** @type {[number, number, number]} */ (shape);
    const size = height * width;
    return values.subarray(channel * size, (channel + 1) * size);
  }

  /**
   * @param {"numbers" | "gradient_numbers"} which Of the maps, or of the gradients.
   * @param {string} name
   */
  row(which, name) {
    const start = ROWS.indexOf(name) * this.count;
    return this.arrays[which].values.subarray(start, start + this.count);
  }

  /**
   * What a channel is that says nothing about this input: "silent", zero everywhere, or "constant".
   * @returns {string[]} "" of those that say something.
   */
  get still() {
    return this.once("still", () => {
      const [least, most] = [this.row("numbers", "min"), this.row("numbers", "max")];
      const [height, width] = this.header.size;
      return Array.from(least, (/** @type {number} */ low, /** @type {number} */ channel) => {
        if (low !== most[channel]) return "";
        if (low === 0) return "silent";
        return height * width > 1 ? "constant" : "";
      });
    });
  }

  /**
   * What the channels are sorted by: by number, where ablation is not known.
   * @param {string} name
   */
  orderOf(name) {
    return name === "score drop" && !this.arrays.ablation_scores ? "index" : name;
  }

  /**
   * The same layer, with what the score loses without each channel.
   * @param {Numbers} scores
   * @param {Numbers} order
   */
  ablated(scores, order) {
    const { shape, values } = this.arrays.orders;
    const all = values.slice();
    all.set(order.values, (this.orders.indexOf("score drop") - 1) * this.count);
    const arrays = { ...this.arrays, ablation_scores: scores, orders: { shape, values: all } };
    return new Layer({ ...this.header, age: "" }, arrays, this.orders, this.network);
  }

  /**
   * Channel numbers in the order in which the slider and the mosaic have them.
   * @param {string} name
   * @returns {ArrayLike<number>}
   */
  order(name) {
    const place = this.orders.indexOf(name) - 1;
    if (place < 0) return this.once("index", () => [...Array(this.count).keys()]);
    return this.arrays.orders.values.subarray(place * this.count, (place + 1) * this.count);
  }

  /**
   * The colour range of each channel.
   * @param {"maps" | "gradients"} which
   * @param {string} normalize
   * @param {boolean} diverging
   * @returns {Range[]}
   */
  ranges(which, normalize, diverging) {
    return this.once(`${which} ${normalize} ${diverging}`, () => {
      const rows = which === "maps" ? "numbers" : "gradient_numbers";
      let ends = [this.row(rows, "min"), this.row(rows, "max")];
      if (normalize === "percentile") {
        const from = which === "maps" ? 0 : 2;
        ends = [from, from + 1].map((place) =>
          this.arrays.percentiles.values.subarray(place * this.count, (place + 1) * this.count),
        );
      }
      if (normalize === "network") {
        const whole = this.network[which === "maps" ? 0 : 1];
        ends = (whole ?? []).map((end) => new Float64Array(this.count).fill(end));
      }
      const wide = normalize === "percentile" || normalize === "network";
      const precision = this.double || wide ? "double" : "single";
      const [least, most] = ends;
      return colourRanges(least, most, normalize, diverging, precision);
    });
  }

  /**
   * The colour range of a channel's gradient where a few places are far beyond the others; else
   * null. See `robust_end` of hookviz.draw.colours.
   * @param {number} channel
   * @param {Range} range By its largest magnitude.
   * @returns {Range | null}
   */
  robust(channel, { high }) {
    const own = /** @type {any} */ (this.arrays).slopeEnds?.(channel);
    const values = own ? [] : this.arrays.percentiles.values;
    const [low, most] = own ?? [2, 3].map((row) => values[row * this.count + channel] ?? 0);
    const end = Math.max(Math.abs(low), Math.abs(most));
    return end > 0 && 2 * end < high ? { low: -end, high: end, precision: "double" } : null;
  }

  /**
   * Maps as they are drawn small: averaged over squares, or all if they are not larger.
   * @param {number} factor
   * @param {number} channel
   * @returns {{values: ArrayLike<number>, height: number, width: number}}
   */
  small(factor, channel) {
    const whole = this.map("maps", channel);
    if (factor <= 1) return { values: whole, height: this.height, width: this.width };
    return this.once(`small ${factor} ${channel}`, () =>
      averaged(whole, this.height, this.width, factor),
    );
  }

  /**
   * @template T
   * @param {string} name
   * @param {() => T} make
   * @returns {T}
   */
  once(name, make) {
    if (!this.made.has(name)) this.made.set(name, make());
    return this.made.get(name);
  }
}

/**
 * The mean of each square of `factor` pixels, or of what is left of one at an edge.
 * @param {ArrayLike<number>} values
 * @param {number} height
 * @param {number} width
 * @param {number} factor
 */
export function averaged(values, height, width, factor) {
  const tall = Math.ceil(height / factor);
  const wide = Math.ceil(width / factor);
  const sums = new Float32Array(tall * wide);
  const counts = new Uint16Array(tall * wide);
  for (let y = 0; y < height; y++) {
    const row = Math.floor(y / factor) * wide;
    for (let x = 0; x < width; x++) {
      const place = row + Math.floor(x / factor);
      sums[place] = /** @type {number} */ (sums[place]) + /** @type {number} */ (values[y * width + x]);
      counts[place] = /** @type {number} */ (counts[place]) + 1;
    }
  }
  return { values: sums.map((sum, i) => sum / /** @type {number} */ (counts[i])), height: tall, width: wide };
}
