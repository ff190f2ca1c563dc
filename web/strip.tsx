// All layers' heatmaps over the input, from first to last; a click goes to the layer.

import { useMemo } from "preact/hooks";
import { Breakable, Canvas } from "./controls.tsx";
import { heatRange, put } from "./levels.ts";
import { middle } from "./numbers.ts";
import { blended, upsampled } from "./overlay.ts";
import type { Picture, SomeHeat } from "./source.ts";

const SIDE = 72;

export interface Row {
  label: string;
  layers: Array<{ name: string; heat: SomeHeat; parts: boolean }>;
  picture: Picture | null;
  palette: (diverging: boolean) => Uint32Array;
  isDark: boolean;
  isStale: boolean;
  alpha: number;
}

/** @param now The shown layer. */
export function Strip({ row, now, onChoose }: {
  row: Row | null;
  now: string;
  onChoose: (name: string) => void;
}) {
  const picture = row?.picture;
  const ground = useMemo(() => (picture ? thumbnail(picture) : null), [picture]);
  return (
    <div class={`hv-strip${row?.isStale ? " hv-stale" : ""}`}>
      <div class="hv-cap">{row?.label}</div>
      <div class="hv-thumbs">
        {row?.layers.map(({ name, heat, parts }) => (
          <button
            key={name}
            type="button"
            class={`hv-thumb${name === now ? " hv-on" : ""}`}
            data-layer={name}
            title={name}
            aria-label={`go to ${name}`}
            aria-current={name === now ? "true" : undefined}
            onClick={() => onChoose(name)}
          >
            <Canvas
              class="hv-map hv-smooth"
              paint={(canvas) => paintThumb(canvas, heat, parts ? null : ground, row)}
              deps={[heat, ground, row.alpha, row.isDark]}
            />
            <span>
              <Breakable name={middle(name || "(model)", 26)} />
            </span>
          </button>
        ))}
      </div>
    </div>
  );
}

function paintThumb(
  canvas: HTMLCanvasElement,
  heat: SomeHeat,
  ground: Picture | null,
  { palette, alpha }: Row,
) {
  const [tall, wide] = heat.shape;
  const { pixels, width, height } = ground ?? blank();
  const values = upsampled(heat.values, tall, wide, height, width);
  const range = heatRange(heat.values);
  const colours = palette(range?.diverging ?? false);
  put(canvas, blended(pixels, values, range, colours, ground ? alpha : 1), width, height);
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
