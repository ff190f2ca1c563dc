// The kernels of the shown layer: in colour, as slices by input channel, or the row of a class.

import { useMemo, useRef } from "preact/hooks";
import { Canvas, Toggle } from "./controls.tsx";
import { put, rangeOf } from "./levels.ts";
import { short } from "./numbers.ts";
import { Bar, Picture, Value } from "./why.tsx";
import type { App } from "./app.ts";
import type { Numeric } from "./layer.ts";
import type { Reasons, Refused } from "./source.ts";

type Found = Omit<Reasons["weights"], "kind"> & { kind: "colour" | "slices" | "row" };

/** The kernels of the shown layer, or the reason why there are none; the previous ones until the next are here. */
export function WeightsPanel({ app }: { app: App }) {
  const { layer, call, channel, sample, depth, place } = app.at;
  const latest = useRef<Found | Refused>();
  const found = app.source.why?.({ ask: "weights", layer, call, channel, sample, depth, place });
  latest.current = (found as Found | Refused | null) ?? latest.current;
  const shown = latest.current;
  const kernels = useMemo(
    () => shown && shown.none === undefined ? <Kernels app={app} found={shown} /> : null,
    [shown, app.colours.dark],
  );
  return (
    <div class="hv-weights-panel">
      {shown?.none && <div class="hv-why-sum">{shown.none}</div>}
      {kernels}
      {app.source.live && <Exciting app={app} />}
    </div>
  );
}

function Kernels({ app, found }: { app: App; found: Found }) {
  const isRow = found.kind === "row";
  return (
    <>
      <div class="hv-why-sum">{found.words}</div>
      <div class="hv-dim">{factsOf(found)}</div>
      <div class="hv-weights">
        <div class={`hv-kernels${isRow ? " hv-kernel-row" : ""}`}>
          {isRow
            ? <Row found={found} />
            : found.channels.map((channel, place) => (
              <Tile key={channel} app={app} found={found} place={place} />
            ))}
        </div>
        <Histogram found={found} />
      </div>
    </>
  );
}

/** Pictures that excite the channel, once they were requested. */
function Exciting({ app }: { app: App }) {
  const { at: { layer, channel }, source } = app;
  const isWanted = app.excited === `${channel} ${layer}`;
  const found = isWanted ? source.why?.({ ask: "feature", layer, channel }) : null;
  const made = found && found.none === undefined ? found : null;
  const working = isWanted && !found ? "making pictures; interrupt the kernel to stop" : "";
  return (
    <>
      <Toggle
        title="pictures that excite the channel most, made by gradient ascent"
        onClick={() => {
          source.retry?.();
          app.excited = `${channel} ${layer}`;
          app.schedule();
        }}
      >
        what excites it?
      </Toggle>
      <div class="hv-dim" aria-live="polite">{found?.none ?? made?.words ?? working}</div>
      <div class="hv-kernels">
        {made?.urls.map((src, place) => (
          <span key={place} class="hv-kernel">
            <img src={src} alt={made.captions[place]} width={128} />
            <span class="hv-dim">{made.captions[place]}</span>
          </span>
        ))}
      </div>
    </>
  );
}

function factsOf({ kind, channels, total, by, facts }: Found) {
  const [what, one] = {
    colour: ["kernels", "kernel"],
    slices: ["slices by input channel", "slice by input channel"],
    row: ["weights by input channel", "weight by input channel"],
  }[kind];
  const count = channels.length < total ? `${channels.length} of ${total}` : `all ${total}`;
  const order = total === 1 ? `one ${one}` : `${count} ${what}, the largest ${by} first`;
  return [order, ...facts.map(([name, value]) => `${name} ${short(Number(value))}`)].join(" · ");
}

function Tile({ app, found, place }: { app: App; found: Found; place: number }) {
  const { kind, channel, channels, numbers, size, arrays, by } = found;
  const [height = 1, width = 1] = size;
  const own = channels[place];
  const isColour = kind === "colour";
  const all = arrays.tiles.values;
  const area = (isColour ? 3 : 1) * height * width;
  const values = all.subarray(place * area, (place + 1) * area);
  const label = `${isColour ? "kernel of channel" : "slice of input channel"} ${own}, ${by} ${
    short(Number(numbers[place]))
  }`;
  const picture = { values, height, width, label, all };
  const name = <span class="hv-dim">{own}</span>;
  if (!isColour) {
    return (
      <span class="hv-kernel" title={label}>
        <Picture {...picture} colours={app.colours} diverging />
        {name}
      </span>
    );
  }
  return (
    <button
      type="button"
      class="hv-kernel"
      title={label}
      aria-pressed={own === channel}
      onClick={() => app.goTo({ channel: own })}
    >
      <Coloured {...picture} />
      {name}
    </button>
  );
}

function Row({ found: { channels, numbers } }: { found: Found }) {
  const sizes = numbers.map((each) => Math.abs(Number(each))).filter(Number.isFinite);
  const most = Math.max(...sizes, 1e-30);
  return (
    <>
      {channels.map((own, place) => (
        <div key={own} class="hv-kernel-bar">
          <span>{own}</span>
          <Bar value={Number(numbers[place])} most={most} />
          <Value text={String(Number(numbers[place]))} />
        </div>
      ))}
    </>
  );
}

function Histogram({ found: { bins, channel } }: { found: Found }) {
  const { low, high, all, own } = bins;
  const share = (counts: number[], bin: number) => ({
    height: `${(100 * (counts[bin] ?? 0)) / Math.max(...counts, 1)}%`,
  });
  const [from, to] = [short(Number(low)), short(Number(high))];
  const label = `distribution of the weights, ${from} to ${to}; the line is channel ${channel}`;
  return (
    <div class="hv-histogram" role="img" aria-label={label} title={label}>
      <div class="hv-histogram-bars">
        {all.map((_, bin) => (
          <span key={bin}>
            <i class="hv-all" style={share(all, bin)} />
            <i class="hv-own" style={share(own, bin)} />
          </span>
        ))}
      </div>
      <div class="hv-dim hv-histogram-ends">
        <span>{from}</span>
        <span>all weights, and this channel's</span>
        <span>{to}</span>
      </div>
    </div>
  );
}

/** A kernel of three input channels as a picture in its own colours; grey is zero. */
function Coloured({ values, height, width, label, all }: {
  values: Numeric;
  height: number;
  width: number;
  label: string;
  all: Numeric;
}) {
  const draw = (canvas: HTMLCanvasElement) => {
    const most = rangeOf(all, true).high;
    const pixels = new Uint8ClampedArray(4 * height * width).fill(255);
    for (let i = 0; i < height * width; i++) {
      for (let c = 0; c < 3; c++) {
        pixels[4 * i + c] = Math.round(127.5 * (1 + values[c * height * width + i] / most));
      }
    }
    put(canvas, pixels, width, height);
  };
  return (
    <span class="hv-why-picture" role="img" aria-label={label}>
      <Canvas width={width} height={height} paint={draw} deps={[values]} />
    </span>
  );
}
