// What is under the pointer, or chosen: outlined in all pictures, its numbers said.

import { fieldPart, fieldWords } from "./field.ts";
import { short, shortest } from "./numbers.ts";
import { positionIn } from "./state.ts";
import type { App } from "./app.ts";
import type { Layer } from "./layer.ts";

/** Outline the position in all panels; returns the names and values at it. */
export function pointed(app: App, data: Layer): Array<[string, string]> | null {
  const { parts, source, at } = app;
  const { spot } = app.state;
  const [height, width] = data.header.size;
  const panels = [parts.input, parts.map, parts.slope];
  for (const panel of panels) panel.cell = panel.field = null;
  if (!spot || !data.width) return null;
  const [row, column] = positionIn(spot, [height, width]);
  const part = {
    u: (column + 0.5) / width,
    v: (row + 0.5) / height,
    wide: 1 / width,
    high: 1 / height,
  };
  for (const panel of panels) panel.cell = panel.elsewhere ? null : part;
  const place = [data.header.depth, row, column];
  const field = at.place && source.field(at); // found out once a place is chosen
  if (field && app.heatmaps.over) parts.input.field = fieldPart(field, place);
  const sees = field
    ? fieldWords(field, place)
    : at.place
    ? "on its way …"
    : "click for its receptive field";
  const verb = {
    patch: "this patch",
    "data-dependent": "receptive field",
    unknown: "receptive field",
  }[(field?.status ?? "") as "unknown"] ?? "sees";
  const value = (which: "maps" | "gradients") => valueOf(app, data, which, row, column);
  const where = `${height > 1 ? `row ${row}, column ${column}` : `position ${column}`} (from 0)`;
  const graded = Boolean(data.arrays.gradient_numbers);
  return [
    [`${data.word} ${at.channel}`, where],
    ["value", value("maps")],
    ...app.rankings.reading(app.ranking, at),
    ...(graded ? [["gradient", value("gradients")] as [string, string]] : []),
    [verb, sees],
  ];
}

/** The exact value, or the rounded one that the browser has. */
export function valueOf(
  { source, at }: App,
  data: Layer,
  which: "maps" | "gradients",
  row: number,
  column: number,
) {
  if (!data.arrays[which]) return "not in this page";
  const exact = source.value(at, row, column);
  return exact
    ? shortest(exact[which] ?? NaN, data.double)
    : valueHere(data, which, at.channel, row, column);
}

/** What the browser has itself; about as large, where it was rounded or averaged. */
function valueHere(
  data: Layer,
  which: "maps" | "gradients",
  channel: number,
  row: number,
  column: number,
) {
  const [height, width] = data.header.size;
  const { shape, values, approximate } = data.arrays[which]!;
  const [, tall, wide] = shape as [number, number, number];
  const y = Math.floor((row * tall) / height);
  const x = Math.floor((column * wide) / width);
  const number = values[(channel * tall + y) * wide + x];
  const rough = approximate || tall !== height || wide !== width;
  return rough ? `${short(number)} (rounded)` : shortest(number, data.double);
}
