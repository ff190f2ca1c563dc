// What is known of a training's recorded step.

import type { Bins } from "./dimension.ts";

/** What a step's bytes hold: its rows, those with weights, and the probe's maps. */
interface StepLayout {
  rows: string[];
  weighted: string[];
  maps: Array<[layer: string, count: number, height: number, width: number]>;
}

export interface StepsFacts {
  model: string;
  words: string;
  /** The recorded steps, and the number of each one's layout. */
  steps: number[];
  of: number[];
  layouts: StepLayout[];
  statistics: string[];
  norms: string[];
  bins: Bins;
  limits: Record<string, number>;
  palettes: Record<string, string>;
  trouble: { at: number; row: string } | null;
}

/** One recorded step: its arrays, as they follow each other in the bytes. */
export class RecordedStep {
  statistics: Float32Array;
  weights: Float32Array;
  dead: Float32Array;
  bins: Uint16Array;
  maps: Uint8Array<ArrayBuffer>;

  constructor(public layout: StepLayout, public facts: StepsFacts, bytes: Uint8Array) {
    const own = bytes.slice().buffer; // aligned, as typed arrays ask
    const rows = layout.rows.length;
    let at = 0;
    const floats = (count: number) => {
      at += 4 * count;
      return new Float32Array(own, at - 4 * count, count);
    };
    this.statistics = floats(rows * 2 * facts.statistics.length);
    this.weights = floats(layout.weighted.length * facts.norms.length);
    this.dead = floats(rows);
    at += 8 * layout.maps.reduce((sum, [, count]) => sum + count, 0); // the maps' ends
    this.bins = new Uint16Array(own, at, rows * 2 * facts.bins.count);
    this.maps = new Uint8Array(own, at + this.bins.byteLength);
  }

  value(name: string, row: string) {
    const { statistics, norms } = this.facts;
    if (norms.includes(name)) {
      const place = this.layout.weighted.indexOf(row);
      return place < 0 ? NaN : this.weights[place * norms.length + norms.indexOf(name)];
    }
    const side = name.startsWith("gradient_") ? 1 : 0;
    const place = this.layout.rows.indexOf(row);
    if (name === "dead") return place < 0 ? NaN : this.dead[place];
    const which = statistics.indexOf(side ? name.slice(9) : name);
    return place < 0 ? NaN : this.statistics[(2 * place + side) * statistics.length + which];
  }

  /** How many values are in each bin. */
  histogram(row: string, side: number) {
    const { count } = this.facts.bins;
    const place = this.layout.rows.indexOf(row);
    if (place < 0) return new Float32Array(count);
    const start = (2 * place + side) * count;
    const upper = Uint32Array.from(this.bins.subarray(start, start + count), (half) => half << 16);
    return new Float32Array(upper.buffer);
  }

  /** Whether there were NaN or Inf, in what it returned or in the gradient. */
  wrong(row: string, side: number) {
    const before = side ? "gradient_" : "";
    return this.value(`${before}nans`, row) + this.value(`${before}infs`, row) > 0;
  }

  /** The probe's maps of a layer: how many, how large, and their levels. */
  map(layer: string) {
    let at = 0;
    for (const [name, count, height, width] of this.layout.maps) {
      const size = count * height * width;
      if (name === layer) {
        return { count, height, width, levels: this.maps.subarray(at, at + size) };
      }
      at += size;
    }
    return null;
  }
}
