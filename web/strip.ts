// All layers' heatmaps over the input, from first to last; a click goes to the layer.

import { el, setAttribute, setText } from "./dom.ts";
import { heatRange, put } from "./levels.ts";
import { middle } from "./numbers.ts";
import { blended, upsampled } from "./overlay.ts";
import type { Picture, SomeHeat } from "./source.ts";

const SIDE = 72;

/** The strip; `onChoose` gets a layer's name. */
export class Strip {
  label = el("div", { class: "hv-cap" });
  row = el("div", { class: "hv-thumbs" });
  root: HTMLDivElement;
  drawn = "";

  constructor(onChoose: (name: string) => void) {
    this.root = el("div", { class: "hv-strip" }, this.label, this.row);
    this.row.addEventListener("click", (event: MouseEvent) => {
      const thumb = (event.target as HTMLElement).closest(".hv-thumb");
      if (thumb instanceof HTMLElement) onChoose(thumb.dataset.layer ?? "");
    });
  }

  show(
    layers: Array<{ name: string; heat: SomeHeat; parts: boolean }>,
    picture: Picture | null,
    palette: (diverging: boolean) => Uint32Array,
    { label, now, alpha, key }: { label: string; now: string; alpha: number; key: string },
  ) {
    setText(this.label, label);
    const all = `${key} ${alpha} ${layers.length}`;
    if (all !== this.drawn) {
      this.drawn = all;
      const ground = picture ? thumbnail(picture) : null;
      this.row.replaceChildren(
        ...layers.map((each) => thumbOf(each, each.parts ? null : ground, palette, alpha)),
      );
    }
    for (const thumb of this.row.querySelectorAll<HTMLElement>(".hv-thumb")) {
      thumb.classList.toggle("hv-on", thumb.dataset.layer === now);
      setAttribute(thumb, "aria-current", thumb.dataset.layer === now ? "true" : null);
    }
  }
}

function thumbOf(
  { name, heat }: { name: string; heat: SomeHeat },
  ground: Picture | null,
  palette: (diverging: boolean) => Uint32Array,
  alpha: number,
) {
  const canvas = el("canvas", { class: "hv-map hv-smooth" });
  const [tall, wide] = heat.shape as [number, number];
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

/** A name that may go on in another line after a dot: cut to one line, layers would look alike. */
function wrapping(name: string): Array<Node | string> {
  const parts = name.split(/(?<=\.)|(?<=[^._])(?=_)/);
  return parts.flatMap((part, n) => [...(n ? [el("wbr")] : []), part]);
}

function blank(): Picture {
  const pixels = new Uint8ClampedArray(4 * SIDE * SIDE).fill(128);
  return { pixels, width: SIDE, height: SIDE };
}

/** A picture made small, by the nearest pixels' mean. */
function thumbnail(picture: Picture): Picture {
  const factor = Math.max(1, Math.floor(Math.max(picture.width, picture.height) / SIDE));
  const width = Math.max(1, Math.floor(picture.width / factor));
  const height = Math.max(1, Math.floor(picture.height / factor));
  const pixels = new Uint8ClampedArray(4 * width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      for (let c = 0; c < 4; c++) {
        let sum = 0;
        for (let dy = 0; dy < factor; dy++) {
          for (let dx = 0; dx < factor; dx++) {
            sum += picture.pixels[4 * ((y * factor + dy) * picture.width + x * factor + dx) + c];
          }
        }
        pixels[4 * (y * width + x) + c] = sum / factor / factor;
      }
    }
  }
  return { pixels, width, height };
}
