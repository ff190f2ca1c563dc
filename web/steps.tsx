// A training on a page: strips of layers × steps, and at one step a layer's histograms and maps.

import { render } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Canvas, Menu, Slider } from "./controls.tsx";
import { binsInWords, drawDimension, isOdd, usedBins } from "./dimension.ts";
import { shareOf } from "./dom.ts";
import { COLOURS, GAP, NAN, paint, paletteOf } from "./levels.ts";
import { short } from "./numbers.ts";
import { RecordedStep } from "./recorded.ts";
import type { StepsFacts } from "./recorded.ts";

const SPAN = 1e3; // from the median to the first and to the last colour, at most
const WIDE = 24; // pixels that a step of the histograms over time is wide at most
const HIGH = 12; // pixels of a row of the strip, as long as there is room
const LABEL = 10; // pixels of a row's name
const LONGEST = 26; // characters of a row's name

/** The recorded steps, and which of them and of their rows is shown. */
export class Steps {
  known: Map<number, RecordedStep> = new Map();
  facts!: StepsFacts; // from the first `take` on
  palettes: Record<string, Uint32Array> = {};
  statistic = "std";
  row = "";
  at = -1;
  follows = true;

  constructor(public root: HTMLElement) {
    root.replaceChildren();
  }

  /** The recorded steps that are here. */
  get steps(): number[] {
    return this.facts.steps.filter((at) => this.known.has(at));
  }

  get rows() {
    return [...new Set(this.facts.layouts.flatMap(({ rows }) => rows))];
  }

  /** Go to a step and a row; at the last step, what comes next is followed. */
  go(at: number | undefined, row: string) {
    if (at === undefined || !this.known.has(at)) return;
    this.follows = at === this.steps[this.steps.length - 1];
    this.show({ at, row });
  }

  /** @param found Steps and their bytes. */
  take(facts: StepsFacts, found: Array<[number, Uint8Array]>) {
    this.facts = facts;
    for (const [at, bytes] of found) {
      const layout = facts.layouts[facts.of[facts.steps.indexOf(at)]];
      this.known.set(at, new RecordedStep(layout, facts, bytes));
    }
    const kept = new Set(facts.steps);
    for (const at of [...this.known.keys()]) if (!kept.has(at)) this.known.delete(at);
    this.palettes = Object.fromEntries(
      Object.entries(facts.palettes).map(([name, text]) => [name, paletteOf(text)]),
    );
    this.show({});
  }

  show(changes: { at?: number; row?: string; statistic?: string }) {
    Object.assign(this, changes);
    const { rows, steps } = this;
    if (!rows.includes(this.row)) this.row = rows[0];
    if (this.follows || !this.known.has(this.at)) this.at = steps[steps.length - 1];
    render(<StepsView view={this} />, this.root);
  }
}

function StepsView({ view }: { view: Steps }) {
  const { facts, steps, rows, row, at } = view;
  const { trouble } = facts;
  const statistics = [
    ...facts.statistics,
    "dead",
    ...facts.statistics.map((name) => `gradient_${name}`),
    ...facts.norms,
  ].filter((name) => !name.endsWith("count"));
  return (
    <>
      <div class="hv-line">
        <h2 class="hv-name">{facts.model}</h2>
        <span class="hv-dim" role="status">{facts.words}</span>
      </div>
      <div class="hv-line hv-tools">
        <Menu
          label="what the colours are of"
          options={statistics.map((name) => [name, statisticName(name)])}
          value={view.statistic}
          onChoose={(statistic) => view.show({ statistic })}
        />
        <Menu
          label="which row"
          options={rows.map((name) => [name, name])}
          value={row}
          onChoose={(row) => view.show({ row })}
        />
        <Slider
          label="step"
          count={steps.length}
          position={steps.indexOf(at)}
          words={`step ${at}`}
          hidden={!steps.length}
          onMove={(position) => view.go(steps[position], row)}
        />
        {trouble && rows.includes(trouble.row) && (
          <button
            type="button"
            onClick={() => view.go(trouble.at, trouble.row)}
          >
            {`first NaN or Inf: step ${trouble.at}, ${trouble.row}`}
          </button>
        )}
      </div>
      {steps.length > 0 && <Recorded view={view} />}
    </>
  );
}

/** All that is drawn of the steps. */
function Recorded({ view }: { view: Steps }) {
  const { facts, row, at, known } = view;
  const step = known.get(at)!;
  const numbers = [
    "mean",
    "std",
    "min",
    "max",
    "zeros",
    "nans",
    "infs",
    "gradient_std",
    "gradient_nans",
    "gradient_infs",
    ...facts.norms,
  ].map((name) => `${statisticName(name)} ${written(name, step.value(name, row))}`);
  return (
    <>
      <StripView view={view} />
      <div class="hv-steps-numbers">{`step ${at}, ${row}: ${numbers.join(" · ")}`}</div>
      <div class="hv-steps-below">
        {["activations", "gradients"].map((what, side) => (
          <div key={what}>
            <Bars view={view} what={what} side={side} />
            <OverTime view={view} what={what} side={side} />
          </div>
        ))}
        <Maps view={view} />
      </div>
    </>
  );
}

/** Layers × steps, coloured by the order of magnitude; shares as they are. */
function stripOf({ facts, steps, rows, known, statistic }: Steps) {
  const side = statistic.startsWith("gradient_") ? 1 : 0;
  const values = (name: string) =>
    steps.map((at) => {
      const step = known.get(at)!;
      // Where there are NaN or Inf the rest says nothing, and would set the scale.
      return step.wrong(name, side) ? Infinity : step.value(statistic, name);
    });
  const shown = rows.map((name) => ({ name, values: values(name) }))
    .filter((row) => !row.values.every(Number.isNaN)); // layers without weights have no norms
  const all = shown.flatMap((row) => row.values);
  const share = statistic.endsWith("zeros") || statistic === "dead";
  const { least, most, largest } = share ? { least: 0, most: 1, largest: 1 } : spanOf(all);
  const signed = ["mean", "min", "max"].includes(statistic.replace("gradient_", ""));
  const level = (value: number) => {
    if (!Number.isFinite(value)) return value === Infinity ? NAN : GAP;
    if (share) return Math.round((COLOURS - 1) * value);
    const kept = Math.min(Math.max(Math.abs(value), least), most);
    const size = Math.log(kept / least) / (Math.log(most / least) || 1);
    return Math.round((COLOURS - 1) * (signed ? 0.5 + 0.5 * Math.sign(value) * size : size));
  };
  const limit = facts.limits[statistic];
  const ends = share
    ? "0 to 1"
    : `${written(statistic, least)} to ${written(statistic, most)}${signed ? ", either sign" : ""}${
      largest > most ? `, the largest ${written(statistic, largest)}` : ""
    }`;
  const marks = limit === undefined ? "" : `; ▲ above ${short(limit)} in some step`;
  return {
    names: shown.map(({ name }) => name),
    over: shown.map((row) => limit !== undefined && row.values.some((value) => value > limit)),
    levels: Uint8Array.from(all, level),
    palette: signed ? "diverging" : "sequential",
    scale: `${statisticName(statistic)}: ${ends}, ${
      steps.length > 1 ? `steps ${steps[0]} to ${steps.at(-1)}` : `step ${steps[0]}`
    }; NaN and Inf magenta${marks}`,
  };
}

function StripView({ view }: { view: Steps }) {
  const { steps, row, at, statistic, palettes, facts: { trouble } } = view;
  const [hovered, setHovered] = useState("");
  const strip = useMemo(() => stripOf(view), [statistic, view.facts]);
  const { names, levels } = strip;
  const high = Math.min(Math.max(HIGH * names.length, 90), 420);
  const column = steps.indexOf(at) / steps.length;
  const line = names.indexOf(row) / names.length;
  const first = trouble
    ? { x: steps.indexOf(trouble.at), y: names.indexOf(trouble.row) }
    : { x: -1, y: -1 };
  const under = (event: MouseEvent) => {
    const { x, y } = shareOf(event, event.currentTarget as Element);
    return { at: steps[Math.floor(x * steps.length)], name: names[Math.floor(y * names.length)] };
  };
  return (
    <>
      <div class="hv-steps-rows">
        <Labels names={names} over={strip.over} high={high} />
        <div class="hv-steps-frame">
          <Canvas
            class="hv-steps-strip"
            role="img"
            aria-label={`${statisticName(statistic)} of ${names.length} rows in ${inSteps(steps)}`}
            style={{ height: `${high}px` }}
            paint={(canvas) =>
              paint(canvas, levels, steps.length, names.length, palettes[strip.palette])}
            deps={[strip]}
            onClick={(event) => {
              const { at, name } = under(event);
              if (name !== undefined) view.go(at, name);
            }}
            onPointerMove={(event) => {
              const { at, name } = under(event);
              if (at === undefined || name === undefined) return;
              const value = view.known.get(at)!.value(statistic, name);
              setHovered(
                `step ${at}, ${name}: ${statisticName(statistic)} ${written(statistic, value)}`,
              );
            }}
            onPointerLeave={() => setHovered("")}
          />
          <Outline left={column} top={0} width={1 / steps.length} height={1} />
          <Outline left={0} top={line} width={1} height={1 / names.length} />
          <span
            class="hv-steps-first"
            style={{
              left: `${(100 * (first.x + 0.5)) / steps.length}%`,
              top: `${(100 * (first.y + 0.5)) / names.length}%`,
            }}
            hidden={first.x < 0 || first.y < 0}
            aria-hidden="true"
          >
            ×
          </span>
        </div>
      </div>
      <div class="hv-dim hv-steps-scale">{hovered || strip.scale}</div>
    </>
  );
}

/** Outlines a part of the strip, whose colours stay; all numbers are shares of the strip. */
function Outline(
  { left, top, width, height }: Record<"left" | "top" | "width" | "height", number>,
) {
  const percent = (share: number) => `${100 * share}%`;
  return (
    <span
      class="hv-steps-chosen"
      hidden={left < 0 || top < 0}
      style={{
        left: percent(left),
        top: percent(top),
        width: percent(width),
        height: percent(height),
      }}
      aria-hidden="true"
    />
  );
}

/**
 * The names of the rows, or of every second or third where they are low.
 * @param over Which rows are above the statistic's limit.
 * @param high Pixels of all.
 */
function Labels({ names, over, high }: { names: string[]; over: boolean[]; high: number }) {
  const every = Math.ceil((LABEL * names.length) / high);
  return (
    <div class="hv-dim hv-steps-labels" aria-hidden="true">
      {names.map((name, start) =>
        start % every === 0 && (
          <div
            key={name}
            title={name}
            style={{ flexGrow: Math.min(every, names.length - start) }}
          >
            {over.slice(start, start + every).some(Boolean) && "▲ "}
            {name.length > LONGEST ? `…${name.slice(1 - LONGEST)}` : name}
          </div>
        )
      )}
    </div>
  );
}

interface Side {
  view: Steps;
  what: string;
  side: number; // 0: of the activations, 1: of the gradients
}

/** A histogram at the shown step. */
function Bars({ view: { known, at, row, facts }, what, side }: Side) {
  const found = known.get(at)!.histogram(row, side);
  const bins = usedBins([found]);
  const words = binsInWords([found], facts.bins);
  return (
    <>
      <div class="hv-dim">{bins ? `${what}: log scale, ${words}` : `no ${what} here`}</div>
      <div
        class="hv-steps-bars"
        role="img"
        aria-label={`Histogram of ${what} of ${row} at step ${at}, ${words}`}
        hidden={!bins}
      >
        {bins && Array.from(found.subarray(bins.first, bins.last + 1), (count, n) => (
          <i
            key={n}
            style={{
              background: barColour(bins.first + n, facts),
              height: count ? `max(2px, ${(100 * count) / Math.max(...found)}%)` : 0,
            }}
          />
        ))}
      </div>
    </>
  );
}

function barColour(place: number, { bins: { octaves, count } }: StepsFacts) {
  if (isOdd(place, count)) return "#ff00ff";
  if (place === octaves + 1) return "#888";
  return place <= octaves ? "#3b6fb6" : "#c0504d";
}

const inSteps = ({ length }: number[]) => `${length} recorded step${length === 1 ? "" : "s"}`;

/** The histograms of all steps. */
function OverTime({ view, what, side }: Side) {
  const { steps, row, known, facts, palettes } = view;
  // They are the same while another of the steps is looked at.
  const found = useMemo(
    () => steps.map((at) => known.get(at)!.histogram(row, side)),
    [row, facts],
  );
  const bins = useMemo(() => usedBins(found), [found]);
  const words = useMemo(() => binsInWords(found, facts.bins), [found]);
  return (
    <>
      <div class="hv-dim" hidden={!bins}>
        {`${what} over the steps: brighter means more values; log scale from bottom to top, ${words}`}
      </div>
      <Canvas
        class="hv-steps-dimension"
        role="img"
        aria-label={`Histograms of ${what} of ${row} in ${inSteps(steps)}, ${words}`}
        style={{ maxWidth: `${WIDE * steps.length}px` }}
        hidden={!bins}
        paint={(canvas) => bins && drawDimension(canvas, found, bins, palettes.sequential)}
        deps={[found]}
        onClick={(event) => {
          const { x } = shareOf(event, event.currentTarget);
          view.go(steps[Math.floor(x * steps.length)], row);
        }}
      />
    </>
  );
}

/** The probe's maps of the row, side by side. */
function Maps({ view: { known, at, row, palettes } }: { view: Steps }) {
  const found = known.get(at)!.map(row);
  return (
    <div>
      <div class="hv-dim">
        {found && `the probe's first ${found.count} maps at step ${at}, each on its own scale`}
      </div>
      <Canvas
        class="hv-steps-maps"
        role="img"
        aria-label={`Maps of ${row} at step ${at}`}
        hidden={!found}
        paint={(canvas) => found && drawMaps(canvas, found, palettes.diverging)}
        deps={[found]}
      />
    </div>
  );
}

function drawMaps(
  canvas: HTMLCanvasElement,
  { count, height, width, levels }: NonNullable<ReturnType<RecordedStep["map"]>>,
  palette: Uint32Array,
) {
  const across = Math.min(count, 8);
  const [wide, high] = [across * (width + 1), Math.ceil(count / across) * (height + 1)];
  const tiles = new Uint8Array(wide * high).fill(GAP);
  for (let line = 0; line < count * height; line++) {
    const [map, y] = [Math.floor(line / height), line % height];
    const to = (Math.floor(map / across) * (height + 1) + y) * wide + (map % across) * (width + 1);
    tiles.set(levels.subarray(line * width, (line + 1) * width), to);
  }
  paint(canvas, tiles, wide, high, palette);
}

/**
 * A statistic as text; of a count every digit.
 * @param value NaN where nothing was recorded.
 */
function written(statistic: string, value: number) {
  if (Number.isNaN(value)) return "–";
  const isCount = /(nans|infs)$/.test(statistic) && Number.isInteger(value);
  return isCount ? String(value) : short(value);
}

/** What the first and the last colour stand for, as `colours_of` in Python has it. */
function spanOf(values: number[]) {
  const known = Float64Array.from(
    values.map(Math.abs).filter((value) => Number.isFinite(value) && value > 0),
  ).sort();
  if (!known.length) return { least: 1, most: 1, largest: 1 };
  const [middle, largest] = [known[known.length >> 1], known[known.length - 1]];
  const least = Math.max(known[0], middle / SPAN);
  return { least, most: Math.min(largest, middle * SPAN), largest };
}

const STATISTIC_NAMES: Record<string, string> = {
  std: "standard deviation",
  gradient_std: "gradient standard deviation",
  nans: "NaN",
  infs: "Inf",
  gradient_nans: "gradient NaN",
  gradient_infs: "gradient Inf",
};

/** @param name As in the records. */
const statisticName = (name: string) => STATISTIC_NAMES[name] ?? name.replaceAll("_", " ");
