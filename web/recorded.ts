// What is known of a training's recorded step.

/** One recorded step: its arrays, as they follow each other in the bytes. */
export class RecordedStep {
  statistics: any;
  weights: any;
  dead: any;
  ends: any;
  bins: any;
  maps: Uint8Array<ArrayBuffer>;

  constructor(public layout: any, public facts: any, bytes: Uint8Array) {
    const own = bytes.slice().buffer; // aligned, as typed arrays ask
    const rows = layout.rows.length;
    let at = 0;
    const next = (Kind: any, count: number) => {
      const made = new Kind(own, at, count);
      at += made.byteLength;
      return made;
    };
    this.statistics = next(Float32Array, rows * 2 * facts.statistics.length);
    this.weights = next(Float32Array, layout.weighted.length * facts.norms.length);
    this.dead = next(Float32Array, rows);
    const ends = layout.maps.reduce((sum: number, map: any) => sum + 2 * map[1], 0);
    this.ends = next(Float32Array, ends);
    this.bins = next(Uint16Array, rows * 2 * facts.bins.count);
    this.maps = new Uint8Array(own, at);
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
    const upper = Uint32Array.from(
      this.bins.subarray(start, start + count),
      (half: number) => half << 16,
    );
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
