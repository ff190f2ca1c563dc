// All tiles' pictures on one canvas: to a browser each canvas is a layer, and to put together a
// hundred of them in each frame takes longer than a frame.

import { el } from "./dom.ts";
import { paint } from "./levels.ts";

interface Places {
  columns: number;
  width: number;
  height: number;
  space: number;
}

/** The canvas that lies behind the tiles. */
export class ImageLayer {
  canvas = el("canvas", { class: "hv-sheet", width: 0, height: 0, "aria-hidden": "true" });
  one = el("canvas"); // a tile at its own pixels; never on the page
  ratio = 1;
  places: Places = { columns: 1, width: 0, height: 0, space: 0 };

  constructor() {
  }

  /** Take the tiles away, and make room for others. */
  begin(places: Places, count: number) {
    this.places = places;
    this.ratio = globalThis.devicePixelRatio || 1;
    const last = this.box(places.columns * Math.ceil(count / places.columns) - 1);
    this.canvas.width = last.right;
    this.canvas.height = last.bottom;
    this.canvas.style.width = `${last.right / this.ratio}px`;
    this.canvas.style.height = `${last.bottom / this.ratio}px`;
  }

  /** Where a tile is, in pixels of the screen. */
  box(place: number) {
    const { columns, width, height, space } = this.places;
    const left = (place % columns) * (width + space);
    const top = Math.floor(place / columns) * (height + space);
    const pixels = (end: number) => Math.round(this.ratio * end);
    const [x, y] = [pixels(left), pixels(top)];
    return { left: x, top: y, right: pixels(left + width), bottom: pixels(top + height) };
  }

  /**
   * Draw one tile: pixels with their edges, or smoothly where there are more than fit.
   * @param width Of the map.
   */
  draw(place: number, levels: Uint8Array, width: number, height: number, palette: Uint32Array) {
    const context = this.canvas.getContext("2d");
    if (!context) return;
    const { left, top, right, bottom } = this.box(place);
    paint(this.one, levels, width, height, palette);
    context.imageSmoothingEnabled = width > right - left || height > bottom - top;
    context.drawImage(this.one, left, top, right - left, bottom - top);
  }
}
