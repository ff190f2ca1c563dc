// Two and their difference in three columns: two runs' heatmaps and maps, or a heatmap's two sides.

import { useMemo, useRef } from "preact/hooks";
import { Canvas } from "./controls.tsx";
import { shareOf } from "./dom.ts";
import { methodName } from "./heatmaps.ts";
import { heatRange, paint, put, rangeOf, toLevels } from "./levels.ts";
import { short } from "./numbers.ts";
import { paintHeat } from "./overlay.ts";
import { putPicture } from "./panel.tsx";
import type { App } from "./app.ts";
import type { Layer, Numbers } from "./layer.ts";
import type { Range } from "./levels.ts";
import type { Heat, Picture } from "./source.ts";

const RUNS = ["original", "edited", "difference"];

interface Heated {
  heat: Heat | null;
  picture: Picture | null;
}
interface Side extends Heated {
  data: Layer;
}
/** The heatmaps of both sides of a target that is a difference. */
export interface Found {
  first?: Numbers;
  second?: Numbers;
  method?: string;
  none?: string;
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
  const shownData = sides.flatMap((side) => [side?.data, side?.heat, side?.picture]);
  const look = [at.channel, at.cmap, at.alpha, at.over_input, colours.dark, facts.run_names];
  useMemo(() => {
    if (!sides.length || !sides.every((side) => side !== null)) return;
    const names = RUNS.map((run, n) => facts.run_names[n] ?? run);
    cells.current = [...heatsOf(app, sides, names, at.heatmap), ...mapsOf(app, sides, names)];
  }, [...shownData, ...look]);
  return (
    <div class="hv-pair hv-three" hidden={!isPair}>
      {cells.current.map((cell, n) => <CellView key={n} app={app} cell={cell} />)}
    </div>
  );
}

/** Where the target is a difference: the heatmaps of both sides, and one less the other. */
export function Sides({ app }: { app: App }) {
  const { source, shown, colours, at: { alpha, over_input } } = app;
  const { facts } = source;
  const found = facts.sides && shown ? source.sides?.(shown.at) : null;
  const picture = source.picture(shown?.data.header.place ?? null);
  const cells = useMemo(() => {
    if (!found?.first || !found.second) return [];
    const { first, second } = found;
    const less = Float64Array.from(first.values, (value, n) => value - second.values[n]);
    const sides = [first, second, { ...first, values: less }].map((heat) => ({ heat, picture }));
    const [one, other] = facts.sides!;
    return heatsOf(app, sides, [one, other, `${one} − ${other}`], found.method!);
  }, [found, picture, alpha, over_input, colours.dark]);
  if (!facts.sides || !source.sides || !shown) return null;
  const other = found?.method === shown.at.heatmap
    ? ""
    : ` (not available for ${methodName(facts, shown.at.heatmap)})`;
  return (
    <div class="hv-strip hv-sides">
      <div class="hv-cap">
        {cells.length
          ? `${
            methodName(facts, found!.method!)
          }${other}: both sides of the target, and their difference`
          : found?.none || "both sides: on their way …"}
      </div>
      <div class="hv-three">
        {cells.map((cell, n) => <CellView key={n} app={app} cell={cell} />)}
      </div>
    </div>
  );
}

function sideOf({ source, at }: App, run: string): Side | null {
  const own = { ...at, run };
  const data = source.layer(own);
  return data && {
    data,
    heat: source.heat(own),
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
        tabIndex={-1} // after a click the next keys are for this view, not for the notebook
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
function mapsOf({ at, colours }: App, sides: Side[], names: string[]): Cell[] {
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
      name: `${names[n]}: ${data.word} ${channel}`,
      range,
      words: `${data.word} ${channel} of ${layer}`,
      isSmooth: false,
      paint: (canvas) =>
        paint(canvas, toLevels(data.map("maps", channel), range), data.width, data.height, palette),
    };
  });
}

/** Two heatmaps on one scale; the third, their difference, about zero on its own. */
function heatsOf(
  { at: { alpha, over_input }, colours, facts }: App,
  sides: Heated[],
  names: string[],
  method: string,
): Cell[] {
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
      name: names[n],
      range,
      words: heat?.values ? `${methodName(facts, method)}: zero everywhere` : (heat?.none ?? ""),
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
