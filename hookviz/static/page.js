// The entry of a page: all numbers are in it, packed; no kernel, no network.

import { App } from "./app.js";
import { block, tellSize } from "./blocks.js";
import { loadDagre } from "./dagre.js";
import { readJson } from "./dom.js";
import { Layer } from "./layer.js";
import { Lesson } from "./lesson.js";
import { pictureOf } from "./pictures.js";
import { speak } from "./words.js";

/** What is in the page. */
class PageSource {
  /** @param {any} facts */
  constructor(facts) {
    this.facts = facts;
    this.live = false;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    /** @type {Map<string, any>} */
    this.known = new Map();
    this.pending = new Set();
  }

  /**
   * A block that is unpacked, or null: then it will be.
   * @param {string} id
   * @param {(found: any) => any} make
   */
  get(id, make) {
    if (!this.pending.has(id)) {
      this.pending.add(id);
      block(id).then((found) => {
        this.known.set(id, found && make(found));
        for (const tell of this.listeners) tell();
      });
    }
    return this.known.get(id) ?? null;
  }

  /** @param {any} at */
  layer(at) {
    const place = this.place(at.layer);
    const { order } = this.facts.choices;
    const { network } = this.facts;
    const made = (/** @type {any} */ found) =>
      new Layer(found.header, found.arrays, order, network);
    return this.get(`layer-${place}`, made);
  }

  /** @param {string} name */
  place(name) {
    return this.facts.layers.findIndex((/** @type {any} */ each) => each.name === name);
  }

  /**
   * @param {any} at
   * @param {string} layer
   * @param {number | null} targetClass
   */
  heat(at, layer, targetClass) {
    const heats = this.get("heatmaps", (found) => found);
    if (!heats) return null;
    const own = targetClass === null || targetClass === this.facts.target.number;
    const name = `${own ? at.heatmap : `gradcam ${targetClass}`} ${this.place(layer)}`;
    const found = heats.arrays[name];
    if (!found) return { values: null, shape: [], none: "no heatmap of this layer is in the page" };
    return found;
  }

  /** @param {any} at */
  field(at) {
    return this.layer(at)?.header.field ?? null;
  }

  map() {
    const made = (/** @type {any} */ { header, arrays }) => ({ ...header, arrays, library: async () => loadDagre() });
    return this.get("map", made);
  }

  picture() {
    return this.get("picture", ({ header, arrays }) => pictureOf(arrays.pixels.values, header));
  }

  /**
   * A map of the output; the same object each time.
   * @param {number} which
   * @param {number | null} channel
   */
  answer(which, channel) {
    const arrays = this.get("answer", (found) => found.arrays);
    if (!arrays) return null;
    const name = `${which} ${channel ?? "all"}`;
    const kinds = ["values", "classes", "pixels"];
    const found = kinds.flatMap((kind) => (arrays[`${name} ${kind}`] ? [[kind, arrays[`${name} ${kind}`]]] : []));
    const made = this.known.get(`answer ${name}`) ?? (found.length ? Object.fromEntries(found) : { none: "left out of this page for its size" });
    this.known.set(`answer ${name}`, made);
    return made;
  }

  /** The page has the heatmaps of this class already; nothing is to be asked. */
  target() {}

  edit() {} // there is no network here to change
  ablate() {}

  value() {
    return null;
  }

  /**
   * @param {any} _
   * @param {string[]} layers
   */
  prefetch(_, layers) {
    for (const layer of layers) this.layer({ layer });
  }
}

/** Put the app into the still picture's place. */
function start() {
  const { facts, settings } = readJson("facts");
  const root = document.getElementById("hookviz");
  if (!root) return;
  speak(facts.language);
  const source = new PageSource(facts);
  const ready = () => {
    const there = source.layer(settings) && (facts.blind || source.picture());
    if (!there) return;
    source.listeners.delete(ready);
    root.replaceChildren();
    const app = new App(root, source, settings, document);
    if (facts.lesson) new Lesson(facts.lesson, app, root);
  };
  source.listeners.add(ready);
  ready();
  tellSize();
}

start();
