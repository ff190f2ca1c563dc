// All layers' heatmaps over the input, from first to last; a click goes to the layer.

import { el, setAttribute, setText } from "./dom.js";
import { heatRange, put } from "./levels.js";
import { middle } from "./numbers.js";
import { blended, upsampled } from "./overlay.js";

/**
 * @typedef {{pixels: Uint8ClampedArray<ArrayBuffer>, width: number, height: number}} Picture
 * @typedef {{values: ArrayLike<number>, shape: number[]}} Heat
 */

const SIDE = 72;

/** The strip; `onChoose` gets a layer's name. */
export class Strip {
  /** @param {(name: string) => void} onChoose */
  constructor(onChoose) {
    this.label = el("div", { class: "hv-cap" });
    this.row = el("div", { class: "hv-thumbs" });
    this.root = el("div", { class: "hv-strip" }, this.label, this.row);
    this.drawn = "";
    this.row.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      const thumb = /** @type {HTMLElement} */ (event.target).closest(".hv-thumb");
      if (thumb instanceof HTMLElement) onChoose(thumb.dataset.layer ?? "");
    });
  }

  /**
   * @param {Array<{name: string, heat: Heat, parts: boolean}>} layers
   * @param {Picture | null} picture
   * @param {(diverging: boolean) => Uint32Array} palette
   * @param {{label: string, now: string, alpha: number, key: string}} said
   */
  show(layers, picture, palette, { label, now, alpha, key }) {
    setText(this.label, label);
    const all = `${key} ${alpha} ${layers.length}`;
    if (all !== this.drawn) {
      this.drawn = all;
      const ground = picture ? thumbnail(picture) : null;
      this.row.replaceChildren(...layers.map((each) => thumbOf(each, each.parts ? null : ground, palette, alpha)));
    }
    for (const thumb of /** @type {NodeListOf<HTMLElement>} */ (this.row.querySelectorAll(".hv-thumb"))) {
      thumb.classList.toggle("hv-on", thumb.dataset.layer === now);
      setAttribute(thumb, "aria-current", thumb.dataset.layer === now ? "true" : null);
    }
  }
}

/**
 * @param {{name: string, heat: Heat}} layer
 * @param {Picture | null} ground
 * @param {(diverging: boolean) => Uint32Array} palette
 * @param {number} alpha
 */
function thumbOf({ name, heat }, ground, palette, alpha) {
  const canvas = el("canvas", { class: "hv-map hv-smooth" });
  const [tall, wide] = /** @type {[number, number]} */ (heat.shape);
  const { pixels, width, height } = ground ?? blank();
  const values = upsampled(heat.values, tall, wide, height, width);
  const range = heatRange(heat.values);
  const colours = palette(range?.diverging ?? false);
  put(canvas, blended(pixels, values, range, colours, ground ? alpha : 1), width, height);
  return el(
    "button",
    { class: "hv-thumb", "data-layer": name, title: name, "aria-label": `go to ${name}` },
    canvas,
    el("span", {}, ...wrapping(middle(name || "(model)", 26))),
  );
}

/**
 * A name that may go on in another line after a dot: cut to one line, layers would look alike.
 * @param {string} name
 * @returns {Array<Node | string>}
 */
function wrapping(name) {
  const parts = name.split(/(?<=\.)|(?<=[^._])(?=_)/);
  return parts.flatMap((part, n) => [...(n ? [el("wbr")] : []), part]);
}

/** @returns {Picture} */
function blank() {
  const pixels = new Uint8ClampedArray(4 * SIDE * SIDE).fill(128);
  return { pixels, width: SIDE, height: SIDE };
}

/**
 * A picture made small, by the nearest pixels' mean.
 * @param {Picture} picture
 * @returns {Picture}
 */
function thumbnail(picture) {
  const factor = Math.max(1, Math.floor(Math.max(picture.width, picture.height) / SIDE));
  const width = Math.max(1, Math.floor(picture.width / factor));
  const height = Math.max(1, Math.floor(picture.height / factor));
  const pixels = new Uint8ClampedArray(4 * width * height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      for (let c = 0; c < 4; c++) {
        let sum = 0;
        for (let dy = 0; dy < factor; dy++)
          for (let dx = 0; dx < factor; dx++)
            sum += /** @type {number} */ (picture.pixels[4 * ((y * factor + dy) * picture.width + x * factor + dx) + c]);
        pixels[4 * (y * width + x) + c] = sum / factor / factor;
      }
  return { pixels, width, height };
}
