// A target that is a difference: both sides' heatmaps and their difference, on one scale.

import { useMemo } from "preact/hooks";
import { Canvas } from "./controls.tsx";
import { methodName } from "./heatmaps.ts";
import { short } from "./numbers.ts";
import { paintHeat } from "./overlay.ts";
import type { App } from "./app.ts";
import type { Numbers } from "./layer.ts";
import type { Range } from "./levels.ts";

export interface Found {
  first?: Numbers;
  second?: Numbers;
  method?: string;
  none?: string;
}

/** Three pictures beside each other. */
export function Sides({ app }: { app: App }) {
  const { source, shown } = app;
  const { sides: names } = source.facts;
  if (!names || !source.sides || !shown) return null;
  const { at } = shown;
  const found = source.sides(at);
  if (!found?.first || !found.second) {
    return (
      <div class="hv-strip hv-sides">
        <div class="hv-cap">{found?.none || "both sides: on their way …"}</div>
      </div>
    );
  }
  const other = found.method === at.heatmap
    ? ""
    : ` (${methodName(source.facts, at.heatmap)} is not of two sides)`;
  return (
    <div class="hv-strip hv-sides">
      <div class="hv-cap">
        {`${found.method}${other}: both sides of the target and their difference, on one scale`}
      </div>
      <div class="hv-three">
        <Three app={app} found={found} names={names} />
      </div>
    </div>
  );
}

function Three({ app, found, names: [one, other] }: {
  app: App;
  found: Found;
  names: [string, string];
}) {
  const { maps, most } = useMemo(() => {
    const [first, second] = [found.first!, found.second!].map(({ values }) => Array.from(values));
    const maps = [first, second, first.map((value, place) => value - second[place])];
    const sizes = maps.flat().filter(Number.isFinite).map(Math.abs);
    return { maps, most: sizes.reduce((a, b) => Math.max(a, b), 0) || 1 };
  }, [found]);
  return (
    <>
      {[one, other, `${one} − ${other}`].map((title, place) => (
        <Side
          key={place}
          app={app}
          found={found}
          map={maps[place]}
          title={title}
          most={most}
          isDifference={place === 2}
        />
      ))}
    </>
  );
}

function Side({ app, found, map, title, most, isDifference }: {
  app: App;
  found: Found;
  map: number[];
  title: string;
  most: number;
  isDifference: boolean;
}) {
  const { colours, at } = app;
  const picture = at.over_input ? app.source.picture(app.shown?.data.header.place ?? null) : null;
  const diverging = isDifference || map.some((value) => value < 0);
  const range: Range = { low: diverging ? -most : 0, high: most, precision: "mixed" };
  const { shape } = found.first!;
  const draw = (canvas: HTMLCanvasElement) => {
    const palette = colours.palette(colours.ofHeatmap(diverging));
    paintHeat(canvas, { values: map, shape }, range, palette, picture, at.alpha);
  };
  return (
    <figure>
      <figcaption>
        <b title={title}>{title}</b>
        <span class="hv-dim">{`${short(range.low)} to ${short(most)}`}</span>
      </figcaption>
      <Canvas
        class="hv-smooth"
        role="img"
        aria-label={`heatmap ${found.method} of ${title}, layer ${at.layer || "(model)"}`}
        paint={draw}
        deps={[found, picture, picture && at.alpha, colours.dark]}
      />
    </figure>
  );
}
