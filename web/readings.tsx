// Exact numbers: what is under the pointer, the channel, its gradient, the layer.

import { Fragment } from "preact";
import { percent, short } from "./numbers.ts";
import type { Layer } from "./layer.ts";

/** By name: min, max, mean, norm, zeros, nans, infs. */
type Figures = Record<string, number>;

const NAMES = ["min", "max", "mean", "norm", "zeros"];

interface Reading {
  data: Layer;
  channel: number;
  /** Names and values at the pointer; hints say what can be done. */
  pairs: Array<[string, string]>;
  hint: boolean;
  notes: string[];
}

export function Readings({ data, channel, pairs, hint, notes }: Reading) {
  const rows: Array<[string, Figures]> = [
    [`${data.word} ${channel}`, ofChannel(data, "numbers", channel)],
  ];
  if (data.arrays.gradient_numbers) {
    rows.push(["its gradient", ofChannel(data, "gradient_numbers", channel)]);
  }
  rows.push([
    `${data.header.extent}, ${data.header.dtype}${data.header.magnitudes}`,
    ofLayer(data),
  ]);
  const isBad = rows.some(([, numbers]) => numbers.nans || numbers.infs);
  const names = [...NAMES, ...(isBad ? ["NaN", "Inf"] : [])];
  return (
    <>
      <table class="hv-table">
        <thead>
          <tr>{["", ...names].map((name) => <th key={name} scope="col">{name}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map(([row, numbers], place) => (
            <tr key={place}>
              <th scope="row">{row}</th>
              {names.map((name) => <td key={name}>{text(name, numbers)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
      <dl class={`hv-here${hint ? " hv-hints" : ""}`} aria-live="off">
        {pairs.map(([name, value], place) => (
          <Fragment key={place}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
      </dl>
      <div class="hv-notes">{notes.map((note, place) => <p key={place}>{note}</p>)}</div>
    </>
  );
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
