// Palettes by name, and which of them a light and a dark page have.

import { paletteOf } from "./levels.ts";
import { isDark } from "./theme.ts";
import type { Source } from "./source.ts";

/** The colours of one explorer. */
export class Colours {
  dark = false;
  palettes: Map<string, Uint32Array> = new Map();
  looked = -Infinity;

  constructor(public root: HTMLElement, public source: Source) {
  }

  /** Look whether the page is dark: now and then, since it costs a layout. */
  look() {
    // Before it is on the page it has no colour.
    if (!this.root.isConnected || performance.now() - this.looked < 400) return;
    this.looked = performance.now();
    this.dark = isDark(this.root);
  }

  palette(name: string) {
    const known = this.palettes.get(name);
    if (known) return known;
    const text = this.source.facts.palettes[name] ?? this.source.facts.palettes.viridis;
    const made = paletteOf(text);
    this.palettes.set(name, made);
    return made;
  }

  /** @param diverging Whose middle is zero. */
  automatic(diverging: boolean) {
    const [sequential, light, dark] = this.source.facts.auto;
    return diverging ? (this.dark ? dark : light) : sequential;
  }

  ofHeatmap(diverging: boolean) {
    return diverging ? this.automatic(true) : this.source.facts.auto[3];
  }
}
