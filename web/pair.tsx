// Two runs and their difference in three columns: the input with its heatmap, and the shown map.

import { useMemo, useRef } from "preact/hooks";
import { Canvas } from "./controls.tsx";
import { shareOf } from "./dom.ts";
import { heatRange, paint, put, toLevels } from "./levels.ts";
import { short } from "./numbers.ts";
import { objectId } from "./objectId.ts";
import { paintHeat } from "./overlay.ts";
import { putPicture } from "./panel.tsx";
import type { App } from "./app.ts";
import type { Layer } from "./layer.ts";
import type { Range } from "./levels.ts";
import type { Heat, Picture } from "./source.ts";

const RUNS = ["original", "edited", "difference"];

interface Side {
  data: Layer;
  heat: Heat | null;
  picture: Picture | null;
}

/** A picture and its caption. */
interface Cell {
  name: string;
  range: Range | null;
  words: string;
  isSmooth: boolean;
  paint: (canvas: HTMLCanvasElement) => void;
}

/** The columns have one set of controls, those of the view. */
export function PairView({ app }: { app: App }) {
  const { source, colours, at, shown } = app;
  const { facts } = source;
  const isPair = facts.pair && source.live;
  const cells = useRef<Cell[]>([]); // the previous ones while the next are on their way
  const sides = isPair && shown?.at === at ? RUNS.map((run) => sideOf(app, run)) : [];
  const key = JSON.stringify([
    sides.map((side) =>
      side && [side.data, side.heat, side.picture].map((of) => of && objectId(of))
    ),
    [at.channel, at.cmap, at.alpha, at.over_input, colours.dark, facts.run_names],
  ]);
  useMemo(() => {
    if (!sides.length || !sides.every((side) => side !== null)) return;
    cells.current = [...heatsOf(app, sides), ...mapsOf(app, sides)];
  }, [key]);
  return (
    <div class="hv-pair hv-three" hidden={!isPair}>
      {cells.current.map((cell, n) => <CellView key={n} app={app} cell={cell} />)}
    </div>
  );
}

function sideOf({ source, at }: App, run: string): Side | null {
  const own = { ...at, run };
  const data = source.layer(own);
  return data && {
    data,
    heat: source.heat(own, at.layer, at.targetClass),
    picture: run === "difference" ? null : source.picture(data.header.place, run),
  };
}

/** A caption and a canvas; a click chooses the position. */
function CellView({ app, cell }: { app: App; cell: Cell }) {
  const { name, range, words, isSmooth } = cell;
  return (
    <figure>
      <figcaption>
        <b title={name}>{name}</b>
        <span class="hv-dim">{range ? `${short(range.low)} to ${short(range.high)}` : words}</span>
      </figcaption>
      <div
        class="hv-frame"
        onClick={(event) => {
          const { x, y } = shareOf(event, event.currentTarget);
          app.state.set({ place: [y, x] });
        }}
      >
        <Canvas
          class={isSmooth ? "hv-map hv-smooth" : "hv-map"}
          role="img"
          aria-label={`${name}: ${words}`}
          width={1}
          height={1}
          paint={cell.paint}
          deps={[cell]}
        />
      </div>
    </figure>
  );
}

/** The maps of both runs on one scale; the difference about zero, on its own. */
function mapsOf({ source, at, colours }: App, sides: Side[]): Cell[] {
  const { layer, channel, cmap } = at;
  const ends = sides.map(({ data }) =>
    ["min", "max"].map((name) => data.row("numbers", name)[channel])
  );
  const signed = sides[0].data.header.signed || sides[1].data.header.signed;
  const own = rangeOf(ends.slice(0, 2).flat(), signed);
  return sides.map(({ data }, n) => {
    const range = n < 2 ? own : rangeOf(ends[2], true);
    const automatic = n === 2 || cmap === "auto";
    const palette = colours.palette(automatic ? colours.automatic(n === 2 || signed) : cmap);
    return {
      name: `${source.facts.run_names[n] ?? RUNS[n]}: ${data.word} ${channel}`,
      range,
      words: `${data.word} ${channel} of ${layer}`,
      isSmooth: false,
      paint: (canvas) =>
        paint(canvas, toLevels(data.map("maps", channel), range), data.width, data.height, palette),
    };
  });
}

function heatsOf({ source, at, colours }: App, sides: Side[]): Cell[] {
  const { alpha, over_input, heatmap } = at;
  const found = sides.map(({ heat }) => heat?.values ? heatRange(heat.values) : null);
  const both = found.slice(0, 2).flatMap((range) => range ? [range.low, range.high] : []);
  const diverging = found.slice(0, 2).some((range) => range?.diverging);
  return sides.map(({ heat, picture }, n) => {
    const range = !found[n]
      ? null
      : n < 2
      ? rangeOf(both, diverging)
      : rangeOf([found[2]!.low, found[2]!.high], true);
    const palette = colours.palette(colours.ofHeatmap(n === 2 || diverging));
    return {
      name: source.facts.run_names[n] ?? RUNS[n],
      range,
      words: heat?.values ? `heatmap ${heatmap}` : (heat?.none ?? ""),
      isSmooth: true,
      paint: (canvas) => {
        if (heat?.values && range && (over_input || !picture)) {
          paintHeat(canvas, heat, range, palette, picture, alpha);
        } else if (picture) putPicture(canvas, picture);
        else put(canvas, new Uint8ClampedArray(4), 1, 1);
      },
    };
  });
}

/** From the least to the largest, or about zero. */
function rangeOf(values: number[], diverging: boolean): Range {
  const finite = values.filter(Number.isFinite);
  const most = Math.max(...finite.map(Math.abs), 0) || 1;
  const low = diverging ? -most : Math.min(...finite, most);
  return { low, high: diverging ? most : Math.max(...finite, low + 1e-30), precision: "mixed" };
}
