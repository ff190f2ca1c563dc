// Puts the parts together: state and data in, one drawing a frame out.

import { choose, mark, say, visible } from "./dom.js";
import { fieldPart, fieldWords } from "./field.js";
import { slide } from "./heading.js";
import { listenToKeys } from "./keyboard.js";
import { Layout } from "./layout.js";
import { heatRange, paint, paletteOf, toLevels } from "./levels.js";
import { mapSize, short, shortest, times } from "./numbers.js";
import { blended, upsampled } from "./overlay.js";
import { putPicture } from "./panel.js";
import { State } from "./state.js";

/**
 * Where facts and numbers come from: a kernel, or the page itself. What is not there yet is null,
 * and `arrivals` are told when it is; a heatmap that there is none of has no values.
 * @typedef {import("./layer.js").Layer} Layer
 * @typedef {import("./panel.js").Panel} Panel
 * @typedef {{values: any, shape: number[], none?: string}} Heat
 * @typedef {{
 *   facts: any, live: boolean, arrivals: Set<() => void>,
 *   layer: (at: any) => Layer | null,
 *   heat: (at: any, layer: string, goal: number | null) => Heat | null,
 *   picture: (place: [number, number]) => any,
 *   field: (at: any) => import("./field.js").Field | null,
 *   target: (number: number) => void, edit: (what: any) => void,
 *   value: (at: any, row: number, column: number) => any,
 *   ahead: (at: any, layers: string[]) => void}} Source
 */

/** The explorer in the browser. */
export class App {
  /**
   * @param {HTMLElement} root
   * @param {Source} source
   * @param {any} settings
   * @param {EventTarget} keys Where keys are listened to.
   */
  constructor(root, source, settings, keys) {
    this.root = root;
    this.source = source;
    this.state = new State(settings);
    /** @type {Layer | null} */
    this.data = null;
    /** @type {Map<string, Uint32Array>} */
    this.palettes = new Map();
    this.frame = 0;
    this.dark = false;
    this.heatNote = "";
    this.heatOver = false; // whether the heatmap's picture has the input's places
    this.inputWords = "";
    this.looked = -Infinity;
    this.made = { key: "", values: /** @type {any} */ (null) };
    this.parts = new Layout(root, source, this.state, {
      target: (number) => this.toTarget(number),
      position: (place) => this.toPosition(place),
      again: () => this.schedule(),
    });
    this.state.onChange((changed) => {
      if (changed.has("layer") || changed.has("normalize") || changed.has("cmap"))
        this.state.set({ ends: null, slopeEnds: null });
      this.schedule();
    });
    this.again = () => this.schedule();
    source.arrivals.add(this.again);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.schedule());
    this.parts.chip.addEventListener("click", () => this.state.set({ layer: this.facts.verdict.layer }));
    listenToKeys(keys, this.steps(), (target, key) => this.meant(target, key));
    this.draw();
  }

  get facts() {
    return this.source.facts;
  }

  get at() {
    return this.state.values;
  }

  // Where to go

  /** @param {number} number */
  toTarget(number) {
    this.state.set({ goal: number });
    this.source.target(number);
  }

  /** @param {number} position */
  toPosition(position) {
    if (!this.data) return;
    const order = this.data.order(this.at.order);
    this.state.set({ channel: order[Math.min(Math.max(position, 0), order.length - 1)] });
  }

  /** @param {number} by */
  toLayer(by) {
    const { layers } = this.facts;
    const now = layers.findIndex((/** @type {any} */ each) => each.name === this.at.layer);
    const next = layers[Math.min(Math.max(now + by, 0), layers.length - 1)];
    this.state.set({ layer: next.name });
  }

  get position() {
    if (!this.data) return 0;
    return Math.max(Array.prototype.indexOf.call(this.data.order(this.at.order), this.at.channel), 0);
  }

  steps() {
    const walk = (/** @type {number} */ by) => () => this.toPosition(this.position + by);
    const page = (/** @type {number} */ by) => () => {
      const first = (this.parts.mosaic.page + by) * this.parts.mosaic.size;
      if (this.data && first >= 0 && first < this.data.count) this.toPosition(first);
    };
    const move = (/** @type {number} */ right, /** @type {number} */ down) => () =>
      this.moveHover(right, down);
    return {
      ArrowLeft: walk(-1),
      ArrowRight: walk(1),
      ArrowUp: () => this.toLayer(-1),
      ArrowDown: () => this.toLayer(1),
      Home: () => this.toPosition(0),
      End: () => this.toPosition(Infinity),
      PageUp: page(-1),
      PageDown: page(1),
      ShiftArrowLeft: move(-1, 0),
      ShiftArrowRight: move(1, 0),
      ShiftArrowUp: move(0, -1),
      ShiftArrowDown: move(0, 1),
      LayerHome: () => this.toLayer(-Infinity),
      LayerEnd: () => this.toLayer(Infinity),
      Escape: () => this.state.set({ place: null, hover: null }),
    };
  }

  /**
   * What a key means where the focus is; "" is left to the page.
   * @param {HTMLElement} target
   * @param {string} key
   */
  meant(target, key) {
    const inside = this.root.contains(target);
    if (!inside && !(target instanceof HTMLBodyElement)) return "";
    if (target instanceof HTMLSelectElement) return "";
    const range = target instanceof HTMLInputElement && target.type === "range";
    if (target instanceof HTMLInputElement && !range) return "";
    const ofLayers = target === this.parts.layers || target === this.parts.ribbon.cells;
    if (range && !ofLayers && target !== this.parts.heading.channel) return "";
    if (!ofLayers) return key;
    const turned = { ArrowLeft: "ArrowUp", ArrowRight: "ArrowDown", Home: "LayerHome", End: "LayerEnd" };
    return /** @type {any} */ (turned)[key] ?? key;
  }

  /**
   * By keyboard: the next value is chosen.
   * @param {number} right
   * @param {number} down
   */
  moveHover(right, down) {
    if (!this.data) return;
    const [height, width] = this.data.header.size;
    const at = this.state.spot ?? { u: 0.5, v: 0.5 };
    const inside = (/** @type {number} */ share) => Math.min(Math.max(share, 0), 1 - 1e-9);
    this.state.set({ hover: null, place: [inside(at.v + down / height), inside(at.u + right / width)] });
  }

  // What is drawn

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  /** Nothing is drawn any more. */
  end() {
    this.source.arrivals.delete(this.again);
    cancelAnimationFrame(this.frame);
    this.frame = -1;
  }

  /** Whether the page is dark: its text is light. Asked now and then, since it costs a layout. */
  look() {
    if (performance.now() - this.looked < 400) return;
    this.looked = performance.now();
    const [r, g, b] = (getComputedStyle(this.root).color.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number);
    this.dark = r + g + b > 384;
  }

  /** @param {string} name */
  palette(name) {
    const known = this.palettes.get(name);
    if (known) return known;
    const text = this.facts.palettes[name] ?? this.facts.palettes.viridis;
    const made = paletteOf(text);
    this.palettes.set(name, made);
    return made;
  }

  /**
   * The colormap's own name where none is chosen.
   * @param {boolean} diverging
   * @param {boolean} [own] Whether the chosen one counts.
   */
  colormap(diverging, own = true) {
    const [sequential, light, dark] = this.facts.auto;
    if (own && this.at.cmap !== "auto") return this.at.cmap;
    return diverging ? (this.dark ? dark : light) : sequential;
  }

  draw() {
    this.frame = 0;
    this.look();
    const { facts, at, source } = this;
    const data = source.layer(at);
    const waiting = !data;
    this.root.classList.toggle("hv-waiting", waiting);
    if (data) {
      this.data = data;
      if (at.channel >= data.count) return this.state.set({ channel: data.count - 1 });
    }
    this.top(waiting);
    if (!this.data || (waiting && this.data.header.layer !== at.layer)) return undefined;
    const shown = this.data;
    this.parts.heading.show(shown.header.counts, at, this.position);
    if (source.live) this.parts.edits.show(facts.edits, at);
    this.drawMaps(shown);
    this.drawInput(shown);
    this.drawHeat(shown);
    this.drawStrip(shown);
    this.point(shown);
    const key = `${numberOfObject(shown)} ${at.channel} ${facts.target.name}`;
    this.parts.readings.show(shown, at.channel, facts.target.name, key);
    this.parts.readings.note(this.notes(shown));
    source.ahead(at, this.neighbours());
    return undefined;
  }

  /** @param {boolean} waiting */
  top(waiting) {
    const { facts, at } = this;
    const layers = facts.layers;
    say(this.parts.title, facts.model);
    say(this.parts.factsLine, facts.facts.join(" · "));
    say(this.parts.chip, facts.verdict.text);
    mark(this.parts.chip, "data-kind", facts.verdict.kind);
    mark(this.parts.chip, "title", facts.verdict.layer === null ? "" : "go there");
    this.parts.chip.disabled = facts.verdict.layer === null;
    const goal = at.goal === null || this.source.live ? facts.target : this.goal();
    const what = this.source.live ? "show its gradient and heatmaps" : "show its Grad-CAM";
    this.parts.predictions.show(facts.predictions, goal, what);
    visible(this.parts.answers, facts.predictions.length > 0 || facts.classes.count > 0);
    visible(this.parts.anyClass.root, facts.classes.count > facts.predictions.length);
    this.lists();
    this.parts.ribbon.show(layers, at.layer, at.health, this.palette("viridis"));
    const place = layers.findIndex((/** @type {any} */ each) => each.name === at.layer);
    const said = `${at.layer || "(model)"}, layer ${place + 1} of ${layers.length}`;
    slide(this.parts.layers, layers.length, place, said);
    visible(this.parts.layers, layers.length > 1);
    this.parts.whole.style.setProperty("--count", String(layers.length));
    this.parts.heading.layer(layers[place], waiting);
  }

  /** What can be found by typing. */
  lists() {
    const { facts } = this;
    if (this.listed === facts) return;
    this.listed = facts;
    this.parts.heading.find.items = facts.layers.map((/** @type {any} */ each) => ({
      key: each.name,
      name: each.name || "(model)",
      more: `${each.kind} ${each.text.replace(/, [\d,]+ parameters$/, "")} · ${each.size}`,
    }));
    const { count, names } = facts.classes;
    this.parts.anyClass.items = Array.from({ length: count }, (_, number) => ({
      key: String(number),
      name: names[number] ?? `class ${number}`,
      more: String(number),
    }));
  }

  /** The class that is asked for in a page. */
  goal() {
    const { at, facts } = this;
    return facts.predictions.find((/** @type {any} */ each) => each.number === at.goal);
  }

  /** @param {Layer} data */
  drawMaps(data) {
    const { at, facts } = this;
    const { channel, normalize, ends, slopeEnds } = at;
    const { layer, size, signed, magnitudes, which } = data.header;
    const where = numberOfObject(data); // what came for another run is another object
    const diverging = at.cmap === "auto" && signed;
    const name = this.colormap(diverging);
    const palette = this.palette(name);
    const words = `channel ${channel} of ${data.count} of layer ${layer || "(model)"}`;
    const whole = { alt: `${words}, a map of ${mapSize(size)}, in ${facts.model}`, size };
    if (!data.width) return this.parts.map.tell("left out of this page for its size");
    const range = data.ranges("maps", normalize, diverging);
    const own = ends ? range.map(() => ({ ...ends, precision: /** @type {"double"} */ ("double") })) : range;
    const key = `${where} ${normalize} ${name} ${ends?.low} ${ends?.high}`;
    this.parts.map.tell("");
    this.parts.map.title(`channel ${channel}${magnitudes}${which}`, this.averaging(data), whole.alt);
    this.one(this.parts.map, data, "maps", own[channel], palette, `${key} ${channel}`);
    this.parts.bars.map.show(range[channel], ends, palette, name);
    choose(this.parts.cmap, at.cmap);
    choose(this.parts.normalize, normalize);
    const by = at.order === "index" ? "" : " in this order";
    this.parts.mosaic.show(data, data.order(at.order), this.position, own, palette, `${key} ${at.order}`, by);
    this.parts.slope.title(`gradient of ${facts.target.name}`, "", `gradient of ${facts.target.name}: ${words}`);
    visible(this.parts.bars.slope.root, data.graded);
    this.parts.slope.tell(data.graded ? "" : this.noGradient(data));
    if (!data.graded) return undefined;
    const slopes = data.ranges("gradients", normalize, true)[channel];
    const chosen = slopeEnds ? { ...slopeEnds, precision: /** @type {"double"} */ ("double") } : slopes;
    const dark = this.colormap(true, false);
    const slopeKey = `${where} ${normalize} ${dark} ${channel} ${slopeEnds?.low} ${slopeEnds?.high}`;
    this.one(this.parts.slope, data, "gradients", chosen, this.palette(dark), slopeKey);
    this.parts.bars.slope.show(slopes, slopeEnds, this.palette(dark), dark);
    return undefined;
  }

  /**
   * @param {Panel} panel
   * @param {Layer} data
   * @param {"maps" | "gradients"} which
   * @param {import("./levels.js").Range} range
   * @param {Uint32Array} palette
   * @param {string} key
   */
  one(panel, data, which, range, palette, key) {
    const [, height, width] = data.arrays[which].shape;
    panel.draw(key, () => {
      const levels = toLevels(data.map(which, this.at.channel), range);
      paint(panel.canvas, levels, width, height, palette);
    });
    panel.place();
  }

  /** @param {Layer} data */
  noGradient(data) {
    if (data.arrays.slopes) return "left out of this page for its size";
    return this.facts.scored ? "no gradient arrives here" : "there is no score, so no gradient";
  }

  /** @param {Layer} data */
  averaging(data) {
    const { size } = data.header;
    const same = size[0] === data.height && size[1] === data.width;
    return same ? mapSize(size) : `${mapSize(size)} → ${mapSize([data.height, data.width])}`;
  }

  /** @param {Layer} data */
  drawInput(data) {
    const picture = this.source.picture(data.header.place);
    const { input } = this.parts;
    visible(input.root, Boolean(picture) || !this.facts.blind);
    if (!picture) return;
    const ratio = Math.min(Math.max(picture.height / picture.width, 0.3), 1.4);
    this.parts.pictures.style.setProperty("--ratio", String(ratio));
    const size = picture.size ? times(picture.size) : `${picture.height}×${picture.width}`;
    input.title("input", size, "the input, as the network saw it");
    input.draw(`${numberOfObject(picture)}`, () => putPicture(input.canvas, picture));
    input.canvas.classList.add("hv-smooth");
    this.inputWords = picture.words ?? "";
    input.place();
  }

  /**
   * The heatmap's values: those of the chosen channel are made here.
   * @param {Layer} data
   * @returns {Heat | null}
   */
  heatOf(data) {
    const { at, facts } = this;
    if (at.heatmap !== facts.product) return this.source.heat(at, data.header.layer, at.goal);
    if (!data.graded || !data.width) return { values: null, shape: [], none: this.noGradient(data) };
    const [height, width] = [data.height, data.width];
    const map = data.map("maps", at.channel);
    const [, tall, wide] = data.arrays.gradients.shape;
    if (tall !== height || wide !== width)
      return { values: null, shape: [], none: "gradient and map are of two sizes in this page" };
    const slope = data.map("gradients", at.channel);
    return { values: map.map((/** @type {number} */ value, /** @type {number} */ i) => value * slope[i]), shape: [height, width] };
  }

  /** @param {Layer} data */
  drawHeat(data) {
    const { at, facts } = this;
    const { heat } = this.parts;
    choose(this.parts.method, at.heatmap);
    choose(this.parts.over, String(at.overlay));
    const found = this.heatOf(data);
    const picture = this.source.picture(data.header.place);
    const goal = this.source.live || at.goal === null ? facts.target.name : this.goal()?.name;
    const label = at.heatmap === facts.effective ? (at.place ? "of the place" : "of the middle") : `of ${goal}`;
    heat.title(label, "", `heatmap ${at.heatmap} ${label}, layer ${at.layer || "(model)"}`);
    this.heatOver = false;
    if (!found) return heat.tell("on its way …");
    const none = found.none ?? (found.values ? "" : "no gradient arrives here");
    heat.tell(none);
    this.heatNote = "";
    visible(this.parts.bars.heat.root, !none || at.strip);
    visible(this.parts.over, Boolean(picture));
    if (none) return undefined;
    const range = heatRange(found.values);
    this.heatNote = emptiness(found.values, at.heatmap);
    const [, light, dark, inferno] = facts.auto;
    const name = range?.diverging ? (this.dark ? dark : light) : inferno;
    const palette = this.palette(name);
    const over = at.overlay && picture;
    this.heatOver = Boolean(over) || at.heatmap === facts.effective;
    const [tall, wide] = found.shape;
    const channel = at.heatmap === facts.product ? at.channel : "";
    const own = channel === "" ? numberOfObject(found) : `${numberOfObject(data)} ${channel}`;
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
    this.parts.bars.heat.show(range ?? ZERO, null, palette, name);
    visible(this.parts.opacity, Boolean(over));
    slide(this.parts.opacity, 101, Math.round(100 * at.alpha), `${Math.round(100 * at.alpha)} %`);
    return undefined;
  }

  /** @param {Layer} data */
  drawStrip(data) {
    const { at, facts, source } = this;
    mark(this.parts.stripButton, "aria-pressed", at.strip ? "true" : "false");
    visible(this.parts.strip.root, at.strip);
    if (!at.strip) return;
    const method = facts.methods.includes(at.heatmap) ? at.heatmap : "gradcam";
    const asked = { ...at, heatmap: method, ofAll: true };
    const found = facts.layers
      .map((/** @type {any} */ { name }) => ({ name, heat: source.heat(asked, name, at.goal) }))
      .filter((/** @type {any} */ each) => each.heat?.values);
    const [, light, dark, inferno] = facts.auto;
    const palette = (/** @type {boolean} */ diverging) =>
      this.palette(diverging ? (this.dark ? dark : light) : inferno);
    const other = method === at.heatmap ? "" : ` (${at.heatmap} is of one layer)`;
    const label = `${method} of ${facts.target.name}${other}: ${found.length} layers, each on its own scale`;
    const key = `${found.map((/** @type {any} */ { heat }) => numberOfObject(heat)).join()} ${this.dark}`;
    const said = { label, now: at.layer, alpha: at.alpha, key };
    this.parts.strip.show(found, source.picture(data.header.place), palette, said);
  }

  /**
   * What is under the pointer, or chosen.
   * @param {Layer} data
   */
  point(data) {
    const { place: chosen, channel } = this.at;
    const { spot } = this.state;
    const [height, width] = data.header.size;
    const panels = [this.parts.input, this.parts.map, this.parts.slope, this.parts.heat];
    if (!spot || !data.width) {
      for (const panel of panels) for (const by of [panel.cell, panel.field]) panel.outline(null, by);
      say(this.parts.inputNote, this.inputWords);
      return this.parts.readings.point([["pointer", "over a picture for exact values"]]);
    }
    const row = Math.min(Math.floor(spot.v * height), height - 1);
    const column = Math.min(Math.floor(spot.u * width), width - 1);
    const part = { u: (column + 0.5) / width, v: (row + 0.5) / height, wide: 1 / width, high: 1 / height };
    for (const panel of panels) panel.outline(part);
    const at = [data.header.depth, row, column];
    const field = chosen && this.source.field(this.at); // found out once a place is chosen
    const onInput = [this.parts.input, ...(this.heatOver ? [this.parts.heat] : [])];
    for (const panel of panels)
      panel.outline(field && onInput.includes(panel) ? fieldPart(field, at) : null, panel.field);
    const sees = field ? fieldWords(field, at) : chosen ? "on its way …" : "click for its receptive field";
    const said = field ? `sees ${sees}` : sees;
    say(this.parts.inputNote, [this.inputWords, said].filter(Boolean).join("; "));
    mark(this.parts.inputNote, "title", said);
    const exact = this.source.value(this.at, row, column);
    const value = (/** @type {"maps" | "gradients"} */ which) => {
      if (!data.arrays[which]) return "not in this page";
      if (exact) return shortest(exact[which], data.double);
      const { shape, values, approximate } = data.arrays[which];
      const [, tall, wide] = shape;
      const y = Math.floor((row * tall) / height);
      const x = Math.floor((column * wide) / width);
      const number = values[(channel * tall + y) * wide + x];
      const rough = approximate || tall !== height || wide !== width;
      return rough ? `≈ ${short(number)}` : shortest(number, data.double);
    };
    const place = height > 1 ? `row ${row}, column ${column}` : `place ${column}`;
    const graded = Boolean(data.arrays.slopes);
    return this.parts.readings.point([
      [`channel ${channel}`, place],
      ["value", value("maps")],
      ...(graded ? [/** @type {[string, string]} */ (["gradient", value("gradients")])] : []),
      ...(this.facts.blind ? [/** @type {[string, string]} */ (["sees", sees])] : []),
    ]);
  }

  /** @param {Layer} data */
  notes(data) {
    const { facts, at } = this;
    const own = data.header.notes ?? [];
    const other = !this.source.live && at.goal !== null && at.goal !== facts.target.number;
    const goal = other ? [`Gradients in this page are of ${facts.target.name}.`] : [];
    const heat = this.heatNote ? [this.heatNote] : [];
    return [...(facts.note ? [facts.note] : []), ...heat, ...goal, ...own, ...(facts.notes ?? [])];
  }

  /** The layers that may be wanted next. */
  neighbours() {
    const names = this.facts.layers.map((/** @type {any} */ each) => each.name);
    const now = names.indexOf(this.at.layer);
    return [now + 1, now - 1, now + 2].flatMap((place) => names[place] ?? []);
  }
}

/** @type {WeakMap<object, number>} */
const numbered = new WeakMap();
let objects = 0;

/**
 * A number that no other object has: what was drawn of one is not drawn of another.
 * @param {object} object
 */
function numberOfObject(object) {
  if (!numbered.has(object)) numbered.set(object, (objects += 1));
  return numbered.get(object);
}

/**
 * What must be said of a heatmap without content, so that none is seen in it.
 * @param {ArrayLike<number>} values
 * @param {string} method
 */
function emptiness(values, method) {
  const bad = Array.prototype.filter.call(values, (value) => !Number.isFinite(value)).length;
  if (bad) return `${method}: ${bad} of ${values.length} values are NaN or infinite.`;
  return Array.prototype.some.call(values, Boolean) ? "" : `${method} is zero everywhere.`;
}

/** @type {import("./levels.js").Range} */
const ZERO = { low: 0, high: 1, precision: "mixed" };
