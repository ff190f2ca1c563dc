// The heatmap, over the input or alone, and the strip with those of all layers.

import { choose, setAttribute, sure, visible } from "./dom.js";
import { slide } from "./heading.js";
import { objectId } from "./objectId.js";
import { heatRange, paint, toLevels } from "./levels.js";
import { blended, upsampled } from "./overlay.js";
import { putPicture } from "./panel.js";

/**
 * @typedef {import("./layer.js").Layer} Layer
 * @typedef {import("./app.js").Heat} Heat
 */

export const ARRIVES_NOT = "no gradient arrives here";

/** @type {Record<string, string>} */
const METHODS = {
  gradcam: "Grad-CAM",
  "gradcam++": "Grad-CAM++",
  hirescam: "HiResCAM",
  xgradcam: "XGrad-CAM",
  layercam: "LayerCAM",
  eigencam: "Eigen-CAM",
  eigengradcam: "Eigen-Grad-CAM",
  scorecam: "Score-CAM",
  legrad: "LeGrad",
  smoothgrad: "SmoothGrad",
  integrated_gradients: "integrated gradients",
  guided_backprop: "guided backpropagation",
};

/**
 * A heatmap's method as it is written in a text.
 * @param {string} method
 */
export const methodName = (method) => METHODS[method] ?? method;

/** What is drawn of the chosen method. */
export class Heatmaps {
  /**
   * @param {import("./layout.js").Layout} parts
   * @param {import("./app.js").Source} source
   * @param {import("./colours.js").Colours} colours
   */
  constructor(parts, source, colours) {
    this.parts = parts;
    this.source = source;
    this.colours = colours;
    this.note = "";
    this.standing = ""; // what is drawn, in words
    this.sizes = ""; // where its cells are not the map's
    this.over = false; // whether the picture has the input's places
    this.made = { key: "", values: /** @type {any} */ (null) };
    this.known = { key: "", note: "", range: /** @type {ReturnType<typeof heatRange>} */ (null) };
  }

  /**
   * The values: those of the chosen channel are made here.
   * @param {Layer} data
   * @param {any} at
   * @returns {Heat | null}
   */
  values(data, at) {
    const { facts } = this.source;
    if (at.heatmap !== facts.product) return this.source.heat(at, data.header.layer, at.targetClass);
    if (!data.graded || !data.width) return { values: null, shape: [], none: noGradient(facts) };
    if (data.header.shown_after) return { values: null, shape: [], none: "only for the raw output: choose it above the map" };
    const [height, width] = [data.height, data.width];
    const map = data.map("maps", at.channel);
    const [, tall, wide] = data.arrays.gradients?.shape ?? [];
    if (tall !== height || wide !== width)
      return { values: null, shape: [], none: "gradient and map are of two sizes in this page" };
    const slope = data.map("gradients", at.channel);
    return { values: map.map((/** @type {number} */ value, /** @type {number} */ i) => value * /** @type {number} */ (slope[i])), shape: [height, width] };
  }

  /**
   * @param {Layer} data
   * @param {any} at
   */
  show(data, at) {
    const { parts, source } = this;
    const { heat } = parts;
    choose(parts.method, at.heatmap);
    choose(parts.over, String(at.over_input));
    const found = this.values(data, at);
    const { methods, product } = source.facts;
    // A part of the picture lies nobody knows where in it.
    const apart = data.header.parts && [...methods, product].includes(at.heatmap);
    const picture = apart ? null : source.picture(data.header.place);
    const target = targetOf(source, at)?.name;
    const label = at.heatmap === source.facts.effective ? (at.place ? "of the position" : "of the middle") : `of ${target}`;
    heat.title(label, "", `heatmap ${methodName(at.heatmap)} ${label}, layer ${at.layer || "(model)"}`);
    // The last one of the same layer and target stands, faint, until that of a new run is there.
    const own = `${at.heatmap} ${label} ${at.layer} ${at.sample} ${at.place}`;
    const stands = !found && own === this.standing;
    heat.root.classList.toggle("hv-stale", stands);
    if (stands) return undefined;
    this.standing = this.note = this.sizes = "";
    this.over = false;
    if (!found) return heat.tell(source.waiting ?? "on its way …");
    const none = found.none || (found.values ? "" : noGradient(source.facts));
    heat.tell(none, false, wayTo(source, data, none));
    visible(parts.bars.heat.root, !none || at.all_layers);
    visible(parts.over, Boolean(picture));
    if (!none) this.draw(data, at, found, picture);
    if (!none) this.standing = own;
    if (this.note) heat.tell(this.note, true);
    return undefined;
  }

  /**
   * @param {Layer} data
   * @param {any} at
   * @param {Heat} found
   * @param {any} picture
   */
  draw(data, at, found, picture) {
    const { colours, parts, source } = this;
    const { heat } = parts;
    const product = at.heatmap === source.facts.product;
    const own = product ? `${objectId(data)} ${at.channel}` : `${objectId(found)}`;
    if (this.known.key !== own)
      this.known = { key: own, note: emptiness(found.values, methodName(at.heatmap)), range: heatRange(found.values) };
    const { range } = this.known;
    this.note = this.known.note;
    const name = colours.ofHeatmap(Boolean(range?.diverging));
    const palette = colours.palette(name);
    const over = at.over_input && picture;
    this.over = Boolean(over) || at.heatmap === source.facts.effective;
    const [tall, wide] = /** @type {[number, number]} */ (found.shape);
    const [high, broad] = data.header.size;
    if (!over && !this.over && (tall !== high || wide !== broad))
      this.sizes = `The heatmap has ${tall}×${wide} cells, the map ${high}×${broad}: the box is of the map, and may lie across the heatmap's.`;
    const key = `${own} ${name}`;
    heat.draw(`${key} ${over ? at.alpha : "alone"}`, () => {
      if (!over) return paint(heat.canvas, toLevels(found.values, range ?? ZERO), wide, tall, palette);
      // Kept while only the opacity moves.
      if (this.made.key !== key)
        this.made = { key, values: upsampled(found.values, tall, wide, picture.height, picture.width) };
      const pixels = blended(picture.pixels, this.made.values, range, palette, at.alpha);
      return putPicture(heat.canvas, { ...picture, pixels });
    });
    heat.canvas.classList.toggle("hv-smooth", Boolean(over));
    heat.place();
    parts.bars.heat.show(range ?? ZERO, null, palette, name);
    visible(parts.opacity, Boolean(over));
    slide(parts.opacity, 101, Math.round(100 * at.alpha), `${Math.round(100 * at.alpha)} %`);
  }

  /**
   * All layers' heatmaps in a row.
   * @param {Layer} data
   * @param {any} at
   */
  strip(data, at) {
    const { colours, parts, source } = this;
    const { facts } = source;
    setAttribute(parts.stripButton, "aria-pressed", at.all_layers ? "true" : "false");
    visible(parts.strip.root, at.all_layers);
    if (!at.all_layers) return;
    const method = facts.methods.includes(at.heatmap) ? at.heatmap : "gradcam";
    const asked = { ...at, heatmap: method, ofAll: true };
    const every = facts.layers.map((/** @type {any} */ { name, parts }) => ({ name, parts: Boolean(parts), heat: source.heat(asked, name, at.targetClass) }));
    const found = every.flatMap(({ heat, ...each }) => (heat?.values ? [{ ...each, heat }] : []));
    // Those of the run before stand, faint, until the first of a new run is there.
    const stands = !found.length && every.some((/** @type {any} */ each) => !each.heat);
    parts.strip.root.classList.toggle("hv-stale", stands);
    if (stands) return;
    const palette = (/** @type {boolean} */ diverging) => colours.palette(colours.ofHeatmap(diverging));
    const other = method === at.heatmap ? "" : ` (${methodName(at.heatmap)} is of one layer)`;
    const label = `${method} of ${facts.target.name}${other}: ${found.length} ${found.length === 1 ? "layer" : "layers, each on its own scale"}`;
    const key = `${found.map((/** @type {any} */ { heat }) => objectId(heat)).join()} ${colours.dark}`;
    const said = { label, now: at.layer, alpha: at.alpha, key };
    parts.strip.show(found, source.picture(data.header.place), palette, said);
  }
}

/**
 * The class that is asked for: a kernel's facts are of it, a page may have another one chosen.
 * @param {import("./app.js").Source} source
 * @param {any} at
 */
export function targetOf({ facts, live }, at) {
  if (live || at.targetClass === null) return facts.target;
  return facts.predictions.find((/** @type {any} */ each) => each.number === at.targetClass) ?? facts.target;
}

/**
 * Why there is no gradient.
 * @param {any} facts
 */
export function noGradient(facts) {
  return facts.scored ? ARRIVES_NOT : "choose a target first";
}

/**
 * The nearest layer at which a gradient arrives, where none arrives here; of two the earlier.
 * @param {import("./app.js").Source} source
 * @param {Layer} data
 * @param {string} none
 * @returns {string | null}
 */
export function wayTo({ facts, reaches }, data, none) {
  if (none !== ARRIVES_NOT) return null;
  const { layers } = facts;
  const own = layers.findIndex((/** @type {any} */ { name }) => name === data.header.layer);
  const graded = [...layers.keys()].filter((n) => (reaches ? reaches(sure(layers[n]).name) : layers[n]?.gradient !== null));
  graded.sort((a, b) => Math.abs(a - own) - Math.abs(b - own) || a - b);
  return layers[graded[0] ?? -1]?.name ?? null;
}

/**
 * What must be said of a heatmap without content, so that none is seen in it.
 * @param {ArrayLike<number>} values
 * @param {string} method
 */
function emptiness(values, method) {
  const bad = Array.prototype.filter.call(values, (value) => !Number.isFinite(value)).length;
  if (bad) return `${method}: ${bad} of ${values.length} values are NaN or infinite.`;
  const some = Array.prototype.filter.call(values, Boolean).length;
  if (!some) return `${method} is zero everywhere.`;
  if (100 * some <= values.length) return `${method} is zero at ${values.length - some} of ${values.length} positions.`;
  return values.length === 1 ? `${method} is one value: the maps are 1×1.` : "";
}

/** @type {import("./levels.js").Range} */
const ZERO = { low: 0, high: 1, precision: "mixed" };
