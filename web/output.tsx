// The output where it is a picture: maps whose values are targets, and boxes over the input.

import { useMemo } from "preact/hooks";
import { LETTER, lowLabels } from "./boxes.ts";
import { Colourbar } from "./colourbar.tsx";
import { Menu, Toggle } from "./controls.tsx";
import { sure } from "./dom.ts";
import { paint as paintLevels, put, rangeOf, toLevels } from "./levels.ts";
import { mapSize, percent, short } from "./numbers.ts";
import { Panel, PanelView, putPicture, zoomed } from "./panel.tsx";
import { pictureOf } from "./pictures.ts";
import { positionIn } from "./state.ts";
import type { App } from "./app.ts";
import type { Bar } from "./colourbar.tsx";
import type { Colours } from "./colours.ts";
import type { Option } from "./controls.tsx";
import type { Numbers } from "./layer.ts";
import type { OutputBox, OutputMap } from "./messages.d.ts";
import type { Source } from "./source.ts";
import type { Place } from "./state.ts";

export interface Found {
  values?: Numbers;
  classes?: Numbers;
  pixels?: Numbers;
  none?: string;
}

const NAMED_CLASSES = 8; // classes that are named below a map
const MENU_CHANNELS = 300; // channels in the menu

/** One map of the output. */
export class Output {
  panel: Panel;
  which = 0;
  channel: number | null = 0; // null: the largest of all, or a picture's channels together
  listed = "";
  options: Option[] = [];
  found: Found | null = null;

  constructor(public app: App) {
    const { state, source } = app;
    this.panel = new Panel(state, "output");
    if (source.write) {
      this.panel.onPick = (place, minus) => {
        const written = this.written(place);
        if (written) app.toWritten(written, minus);
      };
    }
  }

  get maps(): OutputMap[] {
    const { source } = this.app;
    return source.answer ? (source.facts.answer?.maps ?? []) : [];
  }

  get map(): OutputMap | undefined {
    return this.maps[this.which];
  }

  get sample() {
    return this.app.facts.answer?.sample ?? 0;
  }

  choose(value: string) {
    const [which, channel] = value.split(" ");
    this.which = Number(which);
    this.channel = channel === "all" ? null : Number(channel);
    this.app.state.set({ hover: null });
    this.app.schedule();
  }

  /** The value under a point, as Python writes it. */
  written(place: Place) {
    const { map, found, sample } = this;
    if (!map || !found) return "";
    const [row, column] = positionIn(place, map.size);
    if (map.flat) return `${map.name}[${sample}, ${row}, ${column}]`;
    if (this.channel === null && map.picture) {
      return `${map.name}[${sample}, :, ${row}, ${column}].mean()`;
    }
    const channel = this.channel ?? found.classes?.values[row * map.size[1] + column];
    return `${map.name}[${sample}, ${channel}, ${row}, ${column}]`;
  }

  /** The mean of the shown channel, as Python writes it. */
  get mean() {
    const { name, flat } = sure(this.map);
    return `${name}[${this.sample}${flat ? "" : `, ${this.channel}`}].mean()`;
  }

  /** Bring the panel to the shown map. */
  update() {
    const { maps, panel, app: { source, state } } = this;
    if (!maps.length) return;
    this.list(maps);
    const map = sure(this.map);
    const whole = this.channel === null
      ? (map.picture ? "picture" : "largest")
      : map.labels[this.channel];
    this.found = source.answer?.(this.which, this.channel, state.values.sample) ?? null;
    panel.label = map.name;
    panel.side = this.reading(map);
    panel.alt = `output ${map.name}, ${whole}, ${mapSize(map.size)}`;
    panel.title = source.write
      ? "a click makes the value the target, Shift+click subtracts it; by keyboard Enter at the chosen place"
      : "making a value the target needs the notebook";
    panel.tell(this.found ? (this.found.none ?? "") : "on its way …");
    this.mark(map);
  }

  /** Other maps: begin with the main one. */
  list(maps: OutputMap[]) {
    const key = JSON.stringify(maps);
    if (key === this.listed) return;
    this.listed = key;
    const [which, channel] = sure(this.app.facts.answer).first;
    this.which = which;
    this.channel = channel ?? (maps[which].labels.length > 1 ? null : 0);
    this.options = maps.flatMap(({ name, labels, picture }, which) => {
      const own = maps.length > 1 ? ` of ${name}` : "";
      const each = labels.slice(0, MENU_CHANNELS).map((label, channel): Option => [
        `${which} ${channel}`,
        label + own,
      ]);
      if (labels.length < 2) return each;
      return [[`${which} all`, `${picture ? "picture" : "largest"}${own}`] as Option, ...each];
    });
  }

  /** What is under the pointer, or else the map's size. */
  reading(map: OutputMap) {
    const { spot } = this.app.state;
    if (!spot || !this.found) return mapSize(map.size);
    const [row, column] = positionIn(spot, map.size);
    const place = row * map.size[1] + column;
    const { values, classes } = this.found;
    const label = classes && map.labels[classes.values[place] ?? 0];
    return values ? short(values.values[place]) : label || `row ${row}, column ${column}`;
  }

  /** Outline the target's values that are in this map. */
  mark(map: OutputMap) {
    const parts = (this.app.facts.target.written ?? "").split(" - ");
    [this.panel.cell, this.panel.field] = [0, 1].map((n) => partOf(parts[n] ?? "", map));
  }
}

/** How a map is drawn: the colours of its values, or how many positions each class has. */
function lookOf({ size: [height, width] }: OutputMap, found: Found, colours: Colours) {
  const { values, classes, pixels } = found;
  const counts = new Map<number, number>();
  let bar: Bar | null = null;
  let paint = (_: HTMLCanvasElement) => {};
  if (values) {
    const range = rangeOf(values.values);
    const palette = colours.palette(colours.automatic(range.low < 0));
    bar = { whole: range, palette };
    paint = (canvas) => paintLevels(canvas, toLevels(values.values, range), width, height, palette);
  } else if (classes) {
    for (const number of classes.values) counts.set(number, (counts.get(number) ?? 0) + 1);
    const drawn = Uint32Array.from(classes.values, colourOf);
    paint = (canvas) => put(canvas, new Uint8ClampedArray(drawn.buffer), width, height);
  } else if (pixels) {
    paint = (canvas) => putPicture(canvas, pictureOf(pixels.values, { height, width, words: "" }));
  }
  const often = [...counts].sort((one, other) => other[1] - one[1]).slice(0, NAMED_CLASSES);
  return { bar, paint, often };
}

/** The part of the map that a target is. */
function partOf(target: string, map: OutputMap) {
  const [height, width] = map.size;
  const inside = target.startsWith(`${map.name}[`)
    ? /^\[([^\]]*)\](\.mean\(\))?$/.exec(target.slice(map.name.length))
    : null;
  const indices = inside?.[1]?.split(",").map(Number) ?? [];
  const [row = NaN, column = NaN] = indices.slice(-2);
  if (indices.length !== (map.flat ? 3 : 4) || !(row >= 0 && column >= 0)) return null;
  return {
    u: (column + 0.5) / width,
    v: (row + 0.5) / height,
    wide: Math.max(1 / width, 0.02),
    high: Math.max(1 / height, 0.02),
  };
}

/** The shown map, and a menu of all. */
export function OutputView({ output }: { output: Output }) {
  const { app, panel, map, found } = output;
  const { dark } = app.colours;
  const look = useMemo(() => map && found && lookOf(map, found, app.colours), [found, dark]);
  if (!map) return null;
  if (look) panel.draw([found, dark], look.paint);
  const positions = map.size[0] * map.size[1];
  return (
    <PanelView
      panel={panel}
      head={
        <>
          <span class="hv-label" title={panel.label}>{panel.label}</span>
          <span class="hv-dim" title={panel.side}>{panel.side}</span>
          <Menu
            label="map of the output"
            options={output.options}
            value={`${output.which} ${output.channel ?? "all"}`}
            onChoose={(value) => output.choose(value)}
          />
        </>
      }
      below={
        <>
          {look?.bar && (
            <Colourbar name="output" bar={look.bar}>
              {app.source.write && (
                <Toggle
                  title="the mean of this map is the target; Shift+click subtracts it"
                  onClick={(event) => app.toWritten(output.mean, event.shiftKey)}
                >
                  mean as target
                </Toggle>
              )}
            </Colourbar>
          )}
          {look && look.often.length > 0 && (
            <div class="hv-legend">
              {look.often.map(([number, count]) => {
                const name = map.labels[number] ?? String(number);
                return (
                  <button
                    key={number}
                    type="button"
                    class="hv-edit"
                    data-channel={number}
                    title={`${name}, ${
                      percent(count / positions)
                    } of the positions: show its values`}
                    onClick={() => output.choose(`${output.which} ${number}`)}
                  >
                    <i style={{ background: `rgb(${rgbOf(number)})` }} />
                    {name}
                  </button>
                );
              })}
            </div>
          )}
        </>
      }
      onKeyDown={(event) => {
        const { spot } = app.state;
        if (event.key === "Enter" && spot) panel.onPick?.(spot, event.shiftKey);
      }}
    />
  );
}

/** A class's colour, as a pixel: hues far apart for numbers side by side. */
function colourOf(number: number) {
  const [red, green, blue] = rgbOf(number);
  return (255 << 24) | (blue << 16) | (green << 8) | red;
}

function rgbOf(number: number): [number, number, number] {
  const hue = (number * 137.508) % 360;
  const light = number % 2 ? 0.62 : 0.42;
  const strong = 0.62 * Math.min(light, 1 - light);
  const part = (shift: number) => {
    const k = (shift + hue / 30) % 12;
    return Math.round(255 * (light - strong * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}

/** The boxes of a detector's output. */
export function boxesOf({ answer, facts }: Source): OutputBox[] {
  return answer ? (facts.answer?.boxes ?? []) : [];
}

/** The boxes as bars, best first, which need no pointer. */
export function barsOf(boxes: OutputBox[]) {
  const often = (name: string) => boxes.filter(({ label }) => label === name).length > 1;
  return boxes.slice(0, 8).map(({ label, score }, number) => ({
    number,
    name: often(label) ? `box ${number + 1}, ${label}` : label,
    value: score,
    words: percent(score),
    before: null,
    change: "",
  }));
}

/** Boxes and keypoints over the input; a click makes a box's score the target. */
export function Boxes({ app }: { app: App }) {
  const { source } = app;
  const boxes = boxesOf(source);
  if (!boxes.length) return null;
  const { k, x, y } = app.at.zoom;
  const written = (app.facts.target.written ?? "").split(" - ");
  const most = Math.max(...boxes.map(({ score }) => score), 1e-9);
  const aim = (words: string, target: string) => ({
    type: "button" as const,
    title: source.write
      ? `${words}: a click makes its score the target`
      : `${words}; making it the target needs the notebook`,
    "aria-pressed": written.includes(target),
    onClick: (event: MouseEvent) => source.write && app.toWritten(target, event.shiftKey),
  });
  const ignore = (event: Event) => event.stopPropagation(); // the panel would take it
  const words = boxes.map(({ label, score }) => `${label} ${percent(score)}`);
  const isLabelled = boxes.map(({ target }, place) => place < 5 || written.includes(target));
  const low = lowLabels(
    boxes.map(({ corners: [left, top, , bottom] }, place) => ({
      left: k * (left - x),
      top: k * (top - y),
      bottom: k * (bottom - y),
      width: isLabelled[place] ? LETTER * words[place].length : 0,
    })),
  );
  return (
    <div class="hv-boxes" onPointerDown={ignore} onPointerUp={ignore}>
      {boxes.map(({ corners: [left, top, right, bottom], score, target }, place) => {
        const isOn = written.includes(target);
        return (
          <button
            key={place}
            {...aim(words[place], target)}
            class="hv-box"
            data-place={place}
            style={{
              ...zoomed(app.state, left, top, right - left, bottom - top),
              opacity: isOn ? 1 : 0.3 + (0.7 * score) / most,
              zIndex: boxes.length - place,
            }}
          >
            {isLabelled[place] && <span class={low[place] ? "hv-low" : ""}>{words[place]}</span>}
          </button>
        );
      }).reverse()}
      {boxes.slice(0, 5).map(({ points, point_targets, label, score }, place) =>
        points.map(([right, down], number) => {
          const target = point_targets[number];
          const { left, top } = zoomed(app.state, right, down);
          const style = { left, top };
          if (!target) return <i key={number} class="hv-point" style={style} />;
          return (
            <button
              key={number}
              {...aim(`keypoint ${number} of ${label} ${percent(score)}`, target)}
              class="hv-point"
              data-target={target}
              tabIndex={place ? -1 : 0}
              style={style}
            />
          );
        })
      )}
    </div>
  );
}
