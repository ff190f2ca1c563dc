// All layers' heatmaps over the input, from first to last; a click goes to the layer.

import { useMemo } from "preact/hooks";
import { Breakable, Canvas } from "./controls.tsx";
import { contextOf, heatRange, put } from "./levels.ts";
import { ending } from "./numbers.ts";
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
              <Breakable name={ending(name || "(model)", 26)} />
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

/** A picture made small. */
function thumbnail({ pixels, width, height }: Picture): Picture {
  const scale = Math.min(1, SIDE / Math.max(width, height));
  const [wide, high] = [width, height].map((side) => Math.max(1, Math.round(scale * side)));
  const [whole, small] = ["canvas", "canvas"].map((tag) =>
    document.createElement(tag) as HTMLCanvasElement
  );
  put(whole, pixels, width, height);
  [small.width, small.height] = [wide, high];
  const context = contextOf(small);
  context.imageSmoothingQuality = "high";
  context.drawImage(whole, 0, 0, wide, high);
  return { pixels: context.getImageData(0, 0, wide, high).data, width: wide, height: high };
}
