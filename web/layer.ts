// One layer's numbers, as they came from the kernel or out of the page.

import { colourRanges } from "./levels.ts";
import { short } from "./numbers.ts";
import type { Range } from "./levels.ts";
import type { LayerHeader } from "./messages.d.ts";
import type { Field } from "./field.ts";

/** The numbers of an array, as its kind stores them. */
export type Numeric =
  | Float32Array
  | Float64Array
  | Uint32Array
  | Uint8Array
  | Uint8ClampedArray;
export interface Numbers {
  shape: number[];
  values: Numeric;
  approximate?: boolean;
  scale?: number;
}
/** What a layer's header says it has. */
export interface Arrays {
  maps: Numbers;
  numbers: Numbers;
  gradient_numbers: Numbers;
  orders: Numbers;
  "maps percentiles": Numbers;
  "gradients percentiles"?: Numbers;
  flat?: Numbers;
  gradients?: Numbers;
  beside?: Numbers;
  ablation_scores?: Numbers;
  /** A channel's percentiles of its gradient, where not all are computed yet. */
  slopeEnds?: (channel: number) => number[] | null;
}

/** What is said of a layer; the last two by a page. */
export type Header = LayerHeader & { field?: Field; notes?: string[] };

const ROWS = ["min", "max", "mean", "zeros", "norm", "nans", "infs"];

/** Maps, gradients and statistics of one layer, call, sample and depth. */
export class Layer {
  count: number;
  height: number;
  width: number;
  made: Map<string, unknown> = new Map();

  constructor(public header: Header, public arrays: Arrays, public orders: string[]) {
    const shape = arrays.maps?.shape ?? [arrays.numbers.shape[1], 0, 0];
    const [count, height, width] = shape as [number, number, number];
    this.count = count;
    this.height = height;
    this.width = width;
  }

  /** What a channel is called here: a head where the layer is attention. */
  get word() {
    return this.header.word ?? "channel";
  }

  /** What a head's query looks at beside the patches; empty if there is nothing else. */
  beside(channel: number) {
    const { query, beside } = this.header;
    if (!query || !beside?.length || !this.arrays.beside) return "";
    const { values } = this.arrays.beside;
    const weights = beside.map(
      (name: string, place: number) =>
        `weight ${short(values[channel * beside.length + place])} on ${name}`,
    );
    return `Head ${channel}, query ${query}: ${weights.join(", ")}.`;
  }

  /** The channel with the largest sum of activation × gradient, a silent one never; null if there is none. */
  get strongest() {
    const { maps, gradients } = this.arrays;
    if (!gradients) return null;
    return this.once("strongest", () => {
      const size = this.height * this.width;
      let [best, most] = [null as number | null, -Infinity];
      let graded = false;
      for (let channel = 0; channel < this.count; channel++) {
        let sum = 0;
        for (let i = channel * size; i < (channel + 1) * size; i++) {
          sum += maps.values[i] * gradients.values[i];
        }
        graded ||= sum !== 0;
        if (sum > most && this.still[channel] !== "silent") [best, most] = [channel, sum];
      }
      return graded ? best : null;
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

  /** A channel's values; a view, not a copy. */
  map(which: "maps" | "gradients", channel: number) {
    const { shape, values } = this.arrays[which]!;
    const [, height, width] = shape as [number, number, number];
    const size = height * width;
    return values.subarray(channel * size, (channel + 1) * size);
  }

  /** @param which Of the maps, or of the gradients. */
  row(which: "numbers" | "gradient_numbers", name: string) {
    const start = ROWS.indexOf(name) * this.count;
    return this.arrays[which].values.subarray(start, start + this.count);
  }

  /**
   * What a channel is that says nothing about this input: "silent", zero everywhere, or "constant".
   * @returns "" of those that say something.
   */
  get still(): string[] {
    return this.once("still", () => {
      const [least, most] = [this.row("numbers", "min"), this.row("numbers", "max")];
      const [height, width] = this.header.size;
      return Array.from(least, (low: number, channel: number) => {
        if (low !== most[channel]) return "";
        if (low === 0) return "silent";
        return height * width > 1 ? "constant" : "";
      });
    });
  }

  /** What the channels are sorted by: by number, where ablation is not known. */
  orderOf(name: string) {
    return name === "score drop" && !this.arrays.ablation_scores ? "index" : name;
  }

  /** The same layer, with what the score loses without each channel. */
  ablated(scores: Numbers, order: Numbers) {
    const { shape, values } = this.arrays.orders;
    const all = values.slice();
    all.set(order.values, (this.orders.indexOf("score drop") - 1) * this.count);
    const arrays = { ...this.arrays, ablation_scores: scores, orders: { shape, values: all } };
    return new Layer(this.header, arrays, this.orders);
  }

  /** Channel numbers in the order in which the slider and the mosaic have them. */
  order(name: string): ArrayLike<number> {
    const place = this.orders.indexOf(name) - 1;
    if (place < 0) return this.once("index", () => [...Array(this.count).keys()]);
    return this.arrays.orders.values.subarray(place * this.count, (place + 1) * this.count);
  }

  /** The colour range of each channel. */
  ranges(which: "maps" | "gradients", normalize: string, diverging: boolean): Range[] {
    return this.once(`${which} ${normalize} ${diverging}`, () => {
      const rows = which === "maps" ? "numbers" : "gradient_numbers";
      let ends = [this.row(rows, "min"), this.row(rows, "max")];
      if (normalize === "percentile") {
        const { values } = this.arrays[`${which} percentiles`]!;
        ends = [values.subarray(0, this.count), values.subarray(this.count)];
      }
      const precision = this.double || normalize === "percentile" ? "double" : "single";
      const [least, most] = ends;
      return colourRanges(least, most, normalize, diverging, precision);
    });
  }

  /**
   * The colour range of a channel's gradient if a few values are far larger than the rest; else
   * null. See `robust_end` of hookviz.draw.colours.
   * @param range By its largest magnitude.
   */
  robust(channel: number, { high }: Range): Range | null {
    const own = this.arrays.slopeEnds?.(channel);
    const values = own ? [] : this.arrays["gradients percentiles"]!.values;
    const [low, most] = own ?? [values[channel], values[this.count + channel]];
    const end = Math.max(Math.abs(low), Math.abs(most));
    return end > 0 && 2 * end < high ? { low: -end, high: end, precision: "double" } : null;
  }

  /** Maps as they are drawn small: averaged over squares, or all if they are not larger. */
  small(
    factor: number,
    channel: number,
  ): { values: ArrayLike<number>; height: number; width: number } {
    const whole = this.map("maps", channel);
    if (factor <= 1) return { values: whole, height: this.height, width: this.width };
    return this.once(
      `small ${factor} ${channel}`,
      () => averaged(whole, this.height, this.width, factor),
    );
  }

  once<T>(name: string, make: () => T): T {
    if (!this.made.has(name)) this.made.set(name, make());
    return this.made.get(name) as T;
  }
}

/** The mean of each square of `factor` pixels, or of what is left of one at an edge. */
export function averaged(values: ArrayLike<number>, height: number, width: number, factor: number) {
  const tall = Math.ceil(height / factor);
  const wide = Math.ceil(width / factor);
  const sums = new Float32Array(tall * wide);
  const counts = new Uint16Array(tall * wide);
  for (let y = 0; y < height; y++) {
    const row = Math.floor(y / factor) * wide;
    for (let x = 0; x < width; x++) {
      const place = row + Math.floor(x / factor);
      sums[place] = sums[place] + values[y * width + x];
      counts[place] = counts[place] + 1;
    }
  }
  return { values: sums.map((sum, i) => sum / counts[i]), height: tall, width: wide };
}
