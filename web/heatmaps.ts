// The input with the heatmap over it, and the strip with the heatmaps of all layers.

import { sure } from "./dom.ts";
import { heatRange } from "./levels.ts";
import { NO_RANGE, paintHeat } from "./overlay.ts";
import { putPicture } from "./panel.tsx";
import type { Bar } from "./colourbar.tsx";
import type { Layer } from "./layer.ts";
import type { Facts, Heat, Picture, SomeHeat, Source } from "./source.ts";
import type { Values } from "./state.ts";
import type { Panel } from "./panel.tsx";
import type { Row } from "./strip.tsx";
import type { Colours } from "./colours.ts";

export const ARRIVES_NOT = "no gradient arrives here";

/** The name of a heatmap's method as papers write it. */
export const methodName = ({ method_names: names }: Facts, method: string) =>
  names[method] ?? method;

/** Why a page without a network has no such heatmap of another target. */
export const onlyFor = (facts: Facts, method: string, target: string) =>
  `This page has ${methodName(facts, method)} for ${target} only.`;

/** The range of each heatmap that was drawn, and what has to be said of it. */
const looks = new WeakMap<SomeHeat, { note: string; range: ReturnType<typeof heatRange> }>();

/** What is drawn of the chosen method. */
export class Heatmaps {
  note = "";
  standing: unknown[] = []; // what is drawn
  sizes = ""; // where its cells are not the map's
  over = false; // whether the picture has the input's places

  bar: Bar | null = null; // of its colours; null where no heatmap is drawn
  row: Row | null = null; // of all layers

  /** @param input The panel over whose picture the heatmap is drawn. */
  constructor(public input: Panel, public source: Source, public colours: Colours) {
  }

  /** The values: those of the chosen channel are made here. */
  values(data: Layer, at: Values): Heat | null {
    const { facts, gradientsOf = facts.target.name } = this.source;
    if (at.heatmap !== facts.product) return this.source.heat({ ...at, layer: data.header.layer });
    if (gradientsOf !== facts.target.name) {
      return { values: null, shape: [], none: onlyFor(facts, at.heatmap, gradientsOf) };
    }
    if (!data.graded || !data.width) {
      return { values: null, shape: [], none: noGradient(this.source) };
    }
    if (data.header.shown_after) {
      return { values: null, shape: [], none: "only for the raw output: choose it above the map" };
    }
    const [height, width] = [data.height, data.width];
    const map = data.map("maps", at.channel);
    const [, tall, wide] = data.arrays.gradients?.shape ?? [];
    if (tall !== height || wide !== width) {
      return { values: null, shape: [], none: "gradient and map differ in size in this page" };
    }
    const slope = data.map("gradients", at.channel);
    return data.once(`product ${at.channel}`, () => ({
      values: map.map((value: number, i: number) => value * slope[i]),
      shape: [height, width],
    }));
  }

  /**
   * The input with the heatmap over it; the input alone where the heatmap is missing or fully transparent.
   * @param picture The input, as it is shown; null if there is none.
   * @param alt What the picture is.
   */
  show(data: Layer, at: Values, picture: Picture | null, alt: string) {
    const { input, source } = this;
    const found = this.values(data, at);
    const { methods, product } = source.facts;
    // Where in the picture a part of it lies is unknown.
    const apart = data.header.parts && [...methods, product].includes(at.heatmap);
    const label = `${methodName(source.facts, at.heatmap)} of ${source.facts.target.name}`;
    const words = `heatmap ${label}, layer ${at.layer || "(model)"}`;
    // The last one of the same layer, target and picture stands, faint, until that of a new run is there.
    const own = [words, at.sample, picture];
    input.isStale = !found && own.every((part, n) => part === this.standing[n]);
    if (input.isStale) return;
    this.standing = [];
    this.note = this.sizes = "";
    const hidden = Boolean(picture) && at.alpha === 0;
    const none = !found
      ? (source.waiting ?? "on its way …")
      : found.none || (found.values ? "" : noGradient(source));
    input.elsewhere = Boolean(data.header.parts) && Boolean(picture) && (hidden || Boolean(none));
    if (none) this.bar = null;
    if (hidden || none) {
      this.over = Boolean(picture);
      input.alt = picture ? alt : words;
      if (picture) {
        input.isSmooth = true;
        input.draw([picture], (canvas) => putPicture(canvas, picture));
      }
      input.tell(hidden ? "" : none, Boolean(picture), hidden ? null : wayTo(source, data, none));
      return;
    }
    const over = at.over_input && !apart ? picture : null;
    input.alt = over ? `${words}, over the input` : words;
    this.draw(data, at, found as SomeHeat, over);
    this.standing = own;
    input.tell(this.note, true);
  }

  /** @param over The picture below it; null: it is shown alone. */
  draw(data: Layer, at: Values, found: SomeHeat, over: Picture | null) {
    const { colours, input, source } = this;
    const known = looks.get(found) ?? {
      note: emptiness(found.values, methodName(source.facts, at.heatmap)),
      range: heatRange(found.values),
    };
    looks.set(found, known);
    const { range } = known;
    this.note = known.note;
    const name = colours.ofHeatmap(Boolean(range?.diverging));
    const palette = colours.palette(name);
    this.over = Boolean(over);
    const [tall, wide] = found.shape as [number, number];
    const [high, broad] = data.header.size;
    if (!this.over && (tall !== high || wide !== broad)) {
      this.sizes =
        `The heatmap has ${tall}×${wide} cells, the map ${high}×${broad}: the box is of the map, and may lie across the heatmap's.`;
    }
    input.draw([found, name, over, over && at.alpha], (canvas) => {
      paintHeat(canvas, found, range, palette, over, at.alpha);
    });
    input.isSmooth = Boolean(over);
    this.bar = { whole: range ?? NO_RANGE, palette };
  }

  /** All layers' heatmaps in a row. */
  strip(data: Layer, at: Values) {
    const { colours, source } = this;
    const { facts } = source;
    if (!at.all_layers) return;
    const method = facts.methods.includes(at.heatmap) ? at.heatmap : "gradcam";
    const asked = { ...at, heatmap: method, ofAll: true };
    const every = facts.layers.map(({ name, parts }) => ({
      name,
      parts: Boolean(parts),
      heat: source.heat({ ...asked, layer: name }),
    }));
    const found = every.flatMap((
      { heat, ...each },
    ) => (heat?.values ? [{ ...each, heat: heat as SomeHeat }] : []));
    // Those of the run before stand, faint, until the first of a new run is there.
    if (this.row) this.row.isStale = !found.length && every.some(({ heat }) => !heat);
    if (this.row?.isStale) return;
    const isRefused = every.every(({ heat }) => heat && !heat.values);
    const other = method === at.heatmap
      ? ""
      : ` (${methodName(facts, at.heatmap)} is of one layer)`;
    this.row = {
      label: isRefused
        ? (every[0]?.heat?.none ?? noGradient(source))
        : `${methodName(facts, method)} of ${facts.target.name}${other}: ${found.length} ${
          found.length === 1 ? "layer" : "layers, each on its own scale"
        }`,
      layers: found,
      picture: source.picture(data.header.place),
      palette: (diverging) => colours.palette(colours.ofHeatmap(diverging)),
      isDark: colours.dark,
      isStale: false,
      alpha: at.alpha,
    };
  }
}

/** Why there is no gradient. */
export function noGradient({ facts, write }: Pick<Source, "facts" | "write">) {
  if (facts.scored || facts.predictions.length) return ARRIVES_NOT;
  return write ? "choose a target first" : "this page has no target";
}

/** The nearest layer with a gradient, not zero everywhere, where none arrives here; of two the earlier. */
export function wayTo({ facts, reaches }: Source, data: Layer, none: string): string | null {
  if (none !== ARRIVES_NOT) return null;
  const { layers } = facts;
  const own = layers.findIndex(({ name }) => name === data.header.layer);
  const graded = [...layers.keys()].filter((n) => {
    const { name, gradient } = sure(layers[n]);
    return reaches ? reaches(name) : gradient !== null && gradient !== 0;
  });
  graded.sort((a, b) => Math.abs(a - own) - Math.abs(b - own) || a - b);
  return layers[graded[0] ?? -1]?.name ?? null;
}

/** What must be said of a heatmap without content, so that none is seen in it. */
function emptiness(values: ArrayLike<number>, method: string) {
  const bad = Array.prototype.filter.call(values, (value) => !Number.isFinite(value)).length;
  if (bad) return `${method}: ${bad} of ${values.length} values are NaN or infinite.`;
  const some = Array.prototype.filter.call(values, Boolean).length;
  if (!some) return `${method} is zero everywhere.`;
  if (100 * some <= values.length) {
    return `${method} is zero at ${values.length - some} of ${values.length} positions.`;
  }
  return values.length === 1 ? `${method} is one value: the maps are 1×1.` : "";
}
