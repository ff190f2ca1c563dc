// Palettes by name, and which of them a light and a dark page have.

import { sure } from "./dom.js";
import { paletteOf } from "./levels.js";

/** @typedef {import("./app.js").Source} Source */

/** The colours of one explorer. */
export class Colours {
  /**
   * @param {HTMLElement} root
   * @param {Source} source
   */
  constructor(root, source) {
    this.root = root;
    this.source = source;
    this.dark = false;
    /** @type {Map<string, Uint32Array>} */
    this.palettes = new Map();
    this.looked = -Infinity;
  }

  /** Whether the page is dark: its text is light. Asked now and then, since it costs a layout. */
  look() {
    if (performance.now() - this.looked < 400) return;
    this.looked = performance.now();
    const [r, g, b] = (getComputedStyle(this.root).color.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number);
    this.dark = (r ?? 0) + (g ?? 0) + (b ?? 0) > 384;
  }

  /** @param {string} name */
  palette(name) {
    const known = this.palettes.get(name);
    if (known) return known;
    const text = this.source.facts.palettes[name] ?? this.source.facts.palettes.viridis;
    const made = paletteOf(sure(text));
    this.palettes.set(name, made);
    return made;
  }

  /** @param {boolean} diverging Whose middle is zero. */
  automatic(diverging) {
    const [sequential, light, dark] = this.source.facts.auto;
    return diverging ? (this.dark ? dark : light) : sequential;
  }

  /** @param {boolean} diverging */
  ofHeatmap(diverging) {
    return diverging ? this.automatic(true) : this.source.facts.auto[3];
  }
}
