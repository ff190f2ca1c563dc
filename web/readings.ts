// Exact numbers: what is under the pointer, the channel, its gradient, the layer.

import { el, setText } from "./dom.ts";
import { percent, short } from "./numbers.ts";
import type { Layer } from "./layer.ts";

/** By name: min, max, mean, norm, zeros, nans, infs. */
type Figures = Record<string, number>;

const NAMES = ["min", "max", "mean", "norm", "zeros"];

/** A table, and beside it what the pointer is at. */
export class Readings {
  here = el("dl", { class: "hv-here", "aria-live": "off" });
  table = el("table", { class: "hv-table" });
  notes = el("div", { class: "hv-notes" });
  root: HTMLDivElement;
  drawn = "";
  shape = "";
  cells: HTMLElement[][] = [];

  constructor() {
    this.root = el("div", { class: "hv-readings" }, this.table, this.here, this.notes);
  }

  show(data: Layer, channel: number, key: string) {
    if (key === this.drawn) return;
    this.drawn = key;
    const graded = Boolean(data.arrays.gradient_numbers);
    const rows: Array<[string, Figures]> = [
      [`${data.word} ${channel}`, ofChannel(data, "numbers", channel)],
      ...(graded
        ? [["its gradient", ofChannel(data, "gradient_numbers", channel)] as [string, Figures]]
        : []),
      [`whole layer, ${data.header.dtype}${data.header.magnitudes}`, ofLayer(data)],
    ];
    const bad = rows.some(([, numbers]) => numbers.nans || numbers.infs);
    const names = [...NAMES, ...(bad ? ["NaN", "Inf"] : [])];
    const cells = [
      ["", ...names],
      ...rows.map(([name, numbers]) => [name, ...names.map((column) => text(column, numbers))]),
    ];
    this.fill(cells);
  }

  /** Write into the cells that there are; a table of another shape is made anew. */
  fill(rows: string[][]) {
    const shape = `${rows.length} ${rows[0]?.length}`;
    if (shape !== this.shape) {
      this.shape = shape;
      this.cells = rows.map((row, y) =>
        row.map((_, x) => el(x && y ? "td" : "th", { scope: y ? "row" : "col" }))
      );
      const [head = "", ...lines] = this.cells.map((row) => el("tr", {}, ...row));
      this.table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...lines));
    }
    rows.forEach((row, y) => row.forEach((words, x) => setText(this.cells[y][x], words)));
  }

  /**
   * @param pairs Names and values.
   * @param hint They say what can be done.
   */
  point(pairs: Array<[string, string]>, hint: boolean = false) {
    this.here.classList.toggle("hv-hints", hint);
    const known = this.here.children;
    if (known.length !== 2 * pairs.length) {
      this.here.replaceChildren(...pairs.flatMap(() => [el("dt"), el("dd")]));
    }
    pairs.forEach(([name, value], place) => {
      setText(known[2 * place], name);
      setText(known[2 * place + 1], value);
    });
  }

  note(notes: string[]) {
    const now = [...this.notes.children].map((each) => each.textContent);
    if (now.join("\n") !== notes.join("\n")) {
      this.notes.replaceChildren(...notes.map((each) => el("p", {}, each)));
    }
  }
}

function text(column: string, numbers: Figures) {
  if (column === "zeros") return percent(numbers.zeros);
  if (column === "NaN") return numbers.nans ? String(numbers.nans) : "";
  if (column === "Inf") return numbers.infs ? String(numbers.infs) : "";
  return short(numbers[column]);
}

function ofChannel(data: Layer, which: "numbers" | "gradient_numbers", channel: number) {
  const names = [...NAMES, "nans", "infs"];
  const numbers: Figures = Object.fromEntries(
    names.map((name) => [name, data.row(which, name)[channel]]),
  );
  if (Number.isNaN(numbers.min)) numbers.norm = NaN; // nothing finite has no length
  return numbers;
}

function ofLayer(data: Layer) {
  return data.once("of the layer", () => {
    const finite = (name: string) =>
      Array.from(data.row("numbers", name)).filter((value) => !Number.isNaN(value));
    const sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
    const means = finite("mean");
    const least = finite("min");
    return {
      min: least.length ? Math.min(...least) : NaN,
      max: least.length ? Math.max(...finite("max")) : NaN,
      mean: means.length ? sum(means) / means.length : NaN,
      norm: least.length ? Math.sqrt(sum(finite("norm").map((value) => value * value))) : NaN,
      zeros: sum(finite("zeros")) / data.count,
      nans: sum(finite("nans")),
      infs: sum(finite("infs")),
    };
  });
}
