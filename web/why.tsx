// Why a value is what it is: its bias and terms, and the way back to the pixels.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Canvas, Toggle } from "./controls.tsx";
import { paint, rangeOf, toLevels } from "./levels.ts";
import { shareOf } from "./dom.ts";
import { short } from "./numbers.ts";
import { placeIn } from "./state.ts";
import type { ComponentChildren, JSX } from "preact";
import type { App } from "./app.ts";
import type { Colours } from "./colours.ts";
import type { Numeric } from "./layer.ts";
import type { WhyOrigin, WhyTerm, WithoutQuestion } from "./messages.d.ts";
import type { Reason, ReasonQuestion, Reasons } from "./source.ts";
import type { Values } from "./state.ts";

type Answer = Reasons["why"];
type WhyQuestion = ReasonQuestion & { ask: "why" };
/** What is switched off: input channels of a number. */
type Off = Omit<WithoutQuestion, "key" | "ask">;

/** One number of the network: a position, or the place on the pictures, or a value of the output. */
interface Spot {
  asked: Omit<WhyQuestion, "ask">;
  said?: Answer;
}

/** What the drawer asks; it follows the chosen position while it is open. */
export class Why {
  /** From the first value that was asked for, back towards the input. */
  trail: Spot[] = [];
  index = 0;
  /** The view that the trail follows: another position in it begins a new one. */
  followed = "";
  /** The terms that are shown until the next are here. */
  latest: Answer | null = null;
  isAwaited = false;
  /** Layer -> the largest height of a term's origins. */
  heights: Map<string, number> = new Map();

  constructor(public app: App) {}

  toggled() {
    this.followed = "";
    this.app.schedule();
  }

  /** The number of the class whose gradient is shown, if it is one. */
  get target() {
    return this.app.facts.target.number;
  }

  /** The target as it is typed, where it is a number anywhere in the output. */
  get written() {
    const { switches } = this.app.source; // the kernel answers
    const { written } = this.app.facts.target;
    return switches && this.target === null && written?.startsWith("output") ? written : null;
  }

  /** The prediction, where the source can answer why it is what it is. */
  get prediction(): Spot | null {
    const { target, written, app: { source, facts } } = this;
    if (target !== null && (source.switches || typeof facts.why?.output === "number")) {
      return { asked: { output: target } };
    }
    return written === null ? null : { asked: { written } };
  }

  begin(spot: Spot) {
    this.trail = [spot];
    this.go(0);
  }

  go(index: number) {
    this.index = index;
    this.app.schedule();
  }

  /** Walk to where a term came from; the explorer goes along where it has the layer. */
  follow(asked: Pick<Answer, "layer" | "call" | "channel" | "position" | "sample">) {
    this.trail = [...this.trail.slice(0, this.index + 1), { asked }];
    this.go(this.index + 1);
    this.lead(asked);
  }

  lead({ layer, channel, position }: Pick<Answer, "layer" | "channel" | "position">) {
    const facts = this.app.facts.layers.find(({ name }) => name === layer);
    if (!facts) return;
    const size = String(facts.size).split("×").map(Number);
    const inMap = (sizes: number[], fill: number) => [fill, fill, ...sizes].slice(-2);
    const place = placeIn(inMap(position, 0), inMap(size, 1)) ?? this.app.at.place;
    this.followed = key({ ...this.app.at, layer, channel, place });
    this.app.goTo({ layer, channel, place });
  }

  /** A newly chosen position begins a new trail. */
  followPosition() {
    const { at } = this.app;
    const now = key(at);
    if (!at.place || now === this.followed) return;
    this.followed = now;
    const { layer, call, channel, place } = at;
    this.trail = [{ asked: { layer, call, channel, place } }];
    this.index = 0;
  }

  get question(): WhyQuestion | null {
    const { sample, depth } = this.app.at;
    const spot = this.trail[this.index];
    return spot ? { ask: "why", sample, depth, ...spot.asked } : null;
  }

  /** The terms, with those that the kernel has traced back so far: it does some at a time. */
  found(
    question: WhyQuestion,
    terms: Reason<"why"> | null = this.app.source.why!(question),
  ): Reason<"why"> | null {
    const { source } = this.app;
    if (!source.switches || !terms || terms.none !== undefined) return terms;
    const traced = terms.terms.filter((term) => term.traced);
    if (traced.length === terms.terms.length) return terms;
    const next = source.why!({ ...question, traced: terms.constants + traced.length });
    if (!next) return terms;
    if (next.none !== undefined) {
      const over = terms.terms.map((term) => ({ ...term, traced: true }));
      return { ...terms, terms: over, note: next.none };
    }
    next.arrays = { ...terms.arrays, ...next.arrays }; // sent again only where they are of others
    return this.found(question, next);
  }

  /** The answer, or the reason why there is none; the previous one until the next is here. */
  answer(): Answer | string {
    this.followPosition();
    const { question } = this;
    if (!question) return "Click a value in the feature map, or begin from the prediction.";
    const found = this.found(question);
    this.isAwaited = !found;
    if (found?.none !== undefined) {
      this.latest = null;
      return found.none;
    }
    if (found) this.trail[this.index].said = this.latest = found;
    return this.latest ?? "on its way …";
  }

  /** Leave space for the origins of all terms of a layer, so that none moves when they arrive. */
  keep(layer: string, rows: HTMLElement) {
    const origins = [...rows.querySelectorAll(".hv-why-from")];
    const heights = origins.map((each) => Math.ceil(each.getBoundingClientRect().height));
    const high = Math.max(this.heights.get(layer) ?? TWO_LINES, ...heights);
    this.heights.set(layer, high);
    rows.style.setProperty("--hv-from", `${high}px`);
  }

  /** The value without some input channels, in words. */
  tested(off: Off) {
    const found = this.app.source.why?.({ ask: "without", ...off }) ?? null;
    if (!found) return "on its way …";
    if (typeof found.none === "string") return found.none;
    const score = typeof found.score === "string"
      ? `; ${this.app.facts.target.name} logit ${plus(found.score)}`
      : "";
    return `this value: predicted ${plus(found.predicted)}, measured ${plus(found.true)}${score}`;
  }
}

export function WhyPanel({ why }: { why: Why }) {
  const answer = why.answer();
  const { prediction } = why;
  return (
    <div class="hv-why">
      <div class="hv-why-head">
        <span class="hv-why-trail" aria-label="from the value back to the input">
          {why.trail.map((spot, place) => <Step key={place} why={why} spot={spot} place={place} />)}
        </span>
        {prediction && (
          <Toggle onClick={() => why.begin(prediction)}>
            start at {why.app.facts.target.name}
          </Toggle>
        )}
      </div>
      {typeof answer === "string" && <div class="hv-why-sum">{answer}</div>}
      {why.isAwaited && (
        <span class="hv-why-working">
          {why.app.source.switches ? WORKING : "working: the network runs"}
        </span>
      )}
      {typeof answer !== "string" && <Terms key={key(answer)} why={why} found={answer} />}
    </div>
  );
}

function Step({ why, spot, place }: { why: Why; spot: Spot; place: number }) {
  const { layer, channel, position } = spot.said ?? spot.asked;
  const words = layer === undefined
    ? "prediction"
    : `${layer} · ${channel}${positionOf(position ?? [])}`;
  const onClick = () => {
    why.go(place);
    if (spot.said) why.lead(spot.said);
  };
  return (
    <>
      {place > 0 && <span class="hv-dim">←</span>}
      <button type="button" title={words} aria-current={place === why.index} onClick={onClick}>
        {words}
      </button>
    </>
  );
}

/** The value as a sum, a row for each term, and the value without those that are marked. */
function Terms({ why, found }: { why: Why; found: Answer }) {
  const { at, source, facts: { run } } = why.app;
  const { bias, rest, others, constant, constants, terms } = found;
  const [marked, setMarks] = useState<number[]>([]);
  const marks = marked.filter((channel) => terms.some((term) => term.channel === channel));
  const [off, setOff] = useState<Off | null>(null);
  const [cell, setCell] = useState({ run: -1, words: "" }); // a product has numbers of one run
  const advice = found.size.some((side) => side > 1)
    ? "Point at a kernel or patch for each product."
    : "";
  const rows = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (source.switches) why.keep(found.layer, rows.current!);
  }, [found]);
  const sizes = [bias, rest, constant, ...terms.map(({ contribution }) => contribution)]
    .map((text) => Math.abs(number(text)));
  const most = Math.max(...sizes.filter(Number.isFinite), 1e-30);
  const taps = found.arrays.kernel?.shape[1] ?? 1;
  const names = [
    "",
    "input channel",
    "contribution",
    "",
    found.arrays.maps ? "map" : "",
    ...(taps > 1 ? ["kernel", "patch"] : ["weight", "input"]),
    "input from",
  ];
  const mark = (channel: number) => {
    const others = marks.filter((each) => each !== channel);
    setMarks(others.length < marks.length ? others : [...marks, channel]);
    setOff(null);
  };
  const test = () => {
    source.retry?.();
    const { layer, call, channel, position, sample } = found;
    const channels = marks.toSorted((a, b) => a - b);
    setOff({ layer, call, channel, position, sample, channels, target: why.target });
  };
  return (
    <>
      <div class="hv-why-sum" title={found.value}>{sumOf(found)}</div>
      <div class="hv-dim">{onwardOf(found, at.sample)}</div>
      <div class="hv-why-terms" ref={rows}>
        <div class="hv-why-term hv-why-columns">
          {names.map((name, place) => <span key={place}>{name}</span>)}
        </div>
        <Plain name="bias" text={bias} most={most} />
        {terms.map((term, place) => (
          <Term
            key={term.channel}
            {...{ why, found, term, place, most }}
            isMarked={marks.includes(term.channel)}
            onMark={() => mark(term.channel)}
            onPoint={(words) => setCell({ run, words })}
          />
        ))}
        {constants > 0 && (
          <Plain
            name={`${constants} constant channels`}
            text={constant}
            most={most}
            title={CONSTANT}
          />
        )}
        {others > 0 && <Plain name={`${others} others`} text={rest} most={most} />}
      </div>
      <div class="hv-why-cell hv-dim" aria-live="polite">
        {cell.run === run ? cell.words : advice}
      </div>
      <div class="hv-line">
        {marks.length > 0 && <Toggle onClick={test}>switch these off</Toggle>}
        <span>{off && why.tested(off)}</span>
      </div>
    </>
  );
}

function sumOf({ value, bias, rest, others, constant, constants, terms }: Answer) {
  const parts = terms.map(({ contribution, channel }) => added(contribution, `channel ${channel}`));
  const whole = [
    ...parts.slice(0, 3),
    ...(parts.length > 3 ? ["…"] : []),
    ...(constants ? [added(constant, `${constants} constant channels`)] : []),
    ...(others ? [added(rest, `${others} others`)] : []),
  ];
  return `${short(number(value))} = bias ${short(number(bias))} ${whole.join(" ")}`;
}

/** Where the value is, what follows it, and what has to be known about it. */
function onwardOf(found: Answer, sample: number) {
  const after = found.after.map(([name, now]) => `${name} ${short(number(now))}`);
  if (found.mixed) after.push(`${found.mixed} (not followed further)`);
  const then = after.length ? `; then ${after.join(" → ")}` : "";
  const edited = found.edited
    ? `; its edits (${found.edits.join(", ")}) make it ${short(number(found.edited))}`
    : "";
  const isOther = found.sample !== undefined && found.sample !== sample;
  const row = isOther ? `, row ${found.sample} of its batch` : "";
  const note = found.note ? `. ${found.note}` : "";
  const where = found.position.length ? ` at${positionOf(found.position)}` : "";
  return `${found.layer}, channel ${found.channel}${where}${row}${edited}${then}${note}`;
}

const positionOf = (position: number[]) => position.length ? ` (${position.join(", ")})` : "";

function Term({ why, found, term, place, most, isMarked, onMark, onPoint }: {
  why: Why;
  found: Answer;
  term: WhyTerm;
  place: number;
  most: number;
  isMarked: boolean;
  onMark: () => void;
  /** Gets the product under the pointer, in words. */
  onPoint: (words: string) => void;
}) {
  const { colours, source } = why.app;
  const { kernel, patch, maps } = found.arrays;
  const [, height = 1, width = 1] = maps?.shape ?? [];
  const whole = maps?.values.subarray(place * height * width, (place + 1) * height * width);
  const taps = kernel.shape[1] ?? 1;
  const [high, wide] = found.size.length > 1 ? found.size.slice(-2) : [1, found.size[0] ?? 1];
  const tall = taps / wide || high;
  const cells = [kernel, patch].map(({ values }) =>
    values.subarray(place * taps, (place + 1) * taps)
  );
  const point = (event: JSX.TargetedPointerEvent<HTMLElement>) => {
    const { x, y } = shareOf(event, event.currentTarget);
    const row = Math.min(Math.floor(y * tall), tall - 1);
    const column = Math.min(Math.floor(x * wide), wide - 1);
    const [one, two] = cells.map((values) => values[row * wide + column]);
    const product = `kernel ${short(one)} × patch ${short(two)} = ${short(one * two)}`;
    onPoint(`channel ${term.channel}, tap (${row}, ${column}): ${product}`);
  };
  const [from, to] = term.window;
  const share = (part: number, all: number) => `${(100 * part) / all}%`;
  const rest = besides(term);
  const isAwaited = source.switches && !term.traced;
  return (
    <div class="hv-why-term">
      {source.switches
        ? (
          <input
            type="checkbox"
            aria-label={`switch channel ${term.channel} off`}
            checked={isMarked}
            onChange={onMark}
          />
        )
        : <span />}
      <span>channel {term.channel}</span>
      <Bar value={number(term.contribution)} most={most} />
      <Value text={term.contribution} />
      {whole
        ? (
          <Picture
            {...{ colours, height, width }}
            values={whole}
            label={`map of input channel ${term.channel}`}
          >
            {from && to && (
              <i
                style={{
                  top: share(from[0] ?? 0, height),
                  left: share(from[1] ?? 0, width),
                  height: share((to[0] ?? 0) + 1 - (from[0] ?? 0), height),
                  width: share((to[1] ?? 0) + 1 - (from[1] ?? 0), width),
                }}
              />
            )}
          </Picture>
        )
        : <span />}
      {cells.map((values, which) =>
        taps === 1 ? <Value key={which} text={String(values[0])} /> : (
          <Picture
            key={which}
            colours={colours}
            values={values}
            height={tall}
            width={wide}
            label={`${which ? "patch" : "kernel"} of channel ${term.channel}`}
            diverging={which === 0}
            all={which ? whole : undefined}
            onPointerMove={point}
          />
        )
      )}
      <span class="hv-why-from">
        {term.origins.map((origin, n) => <Origin key={n} why={why} origin={origin} />)}
        {isAwaited
          ? <span class="hv-why-awaited">on its way …</span>
          : rest && <span class="hv-dim" title={REMAINDERS[term.kind ?? ""]?.[1]}>{rest}</span>}
      </span>
    </div>
  );
}

function Origin({ why, origin }: { why: Why; origin: WhyOrigin }) {
  const { layer, channel, position, path, part, cut_off: cutOff, call, sample } = origin;
  const words = `${cutOff ? "cut off" : short(number(part))} ← ${layer} · ${channel}${
    positionOf(position)
  }`;
  if (layer === "input") return <span>{words}</span>;
  return (
    <button
      type="button"
      title={`${words}, ${path.length ? `by ${path.join(", ")}` : "directly"}`}
      onClick={() => why.follow({ layer, call, channel, position, sample })}
    >
      {words}
    </button>
  );
}

/** A term without pictures. */
function Plain({ name, text, most, title }: {
  name: string;
  text: string;
  most: number;
  title?: string;
}) {
  return (
    <div class="hv-why-term">
      <span />
      <span title={title}>{name}</span>
      <Bar value={number(text)} most={most} />
      <Value text={text} />
    </div>
  );
}

/** @param text All digits. */
export function Value({ text }: { text: string }) {
  return <span class="hv-why-number" title={text}>{short(number(text))}</span>;
}

/** To the right for a positive value, to the left for a negative one. */
export function Bar({ value, most }: { value: number; most: number }) {
  const width = Number.isFinite(value) ? (50 * Math.abs(value)) / most : 50;
  const left = value < 0 ? 50 - width : 50;
  return (
    <span class="hv-why-bar" aria-hidden="true">
      <i
        class={value < 0 ? "hv-less" : "hv-more"}
        style={{ width: `${width}%`, left: `${left}%` }}
      />
    </span>
  );
}

/**
 * A small picture of values in its own range; the kernel's middle is zero.
 * @param all The values whose range it is, where these are a part.
 */
export function Picture(
  { colours, values, height, width, label, diverging, all = values, children, ...events }: {
    colours: Colours;
    values: Numeric;
    height: number;
    width: number;
    label: string;
    diverging?: boolean;
    all?: Numeric;
    children?: ComponentChildren;
    onPointerMove?: (event: JSX.TargetedPointerEvent<HTMLElement>) => void;
  },
) {
  const draw = (canvas: HTMLCanvasElement) => {
    const range = rangeOf(all, diverging || undefined, "double");
    const palette = colours.palette(colours.automatic(range.low < 0));
    paint(canvas, toLevels(values, range), width, height, palette);
  };
  return (
    <span class="hv-why-picture" role="img" aria-label={label} {...events}>
      <Canvas width={width} height={height} paint={draw} deps={[values, all, colours.dark]} />
      {children}
    </span>
  );
}

/** What a number is, as text. */
const key = (
  { layer, call, channel, sample, ...where }:
    & Pick<Values, "layer" | "call" | "channel" | "sample">
    & { place?: Values["place"]; position?: number[] | null },
) => JSON.stringify([layer, call, channel, sample, where.place, where.position]);

/** @param text As Python writes a number. */
function number(text: string) {
  return Number(text.replace("inf", "Infinity"));
}

function added(text: string, name: string) {
  const value = number(text);
  return `${value < 0 ? "−" : "+"} ${short(Math.abs(value))} (${name})`;
}

function plus(text: string) {
  const value = number(text);
  return value < 0 ? short(value) : `+${short(value)}`;
}

/** What is left of an input beside the parts: in few words, and in full. */
const REMAINDERS: Record<string, [words: string, title: string]> = {
  constant: ["from biases", "biases and shifts: they come from no layer"],
  linearisation: [
    "left over: the path is not linear",
    "the path is not piecewise linear: the parts are gradient × value, and this is what is left",
  ],
  unexplained: ["unexplained", "autograd does not follow all of the path"],
};

/** What an input was made of beside the parts that are shown one by one. */
function besides({ origins, traced, others, rest, remainder, kind, bent_by: by }: WhyTerm) {
  if (!traced) return origins.length ? "" : "traced back in the notebook";
  if (typeof remainder !== "string") return "padding, or not traced back";
  const parts = others ? [`${short(number(rest ?? "0"))} from ${others} others`] : [];
  const left = number(remainder);
  const size = origins.reduce((sum, { part }) => sum + Math.abs(number(part)), Math.abs(left));
  if (Math.abs(left) > 1e-5 * size) {
    const [words] = REMAINDERS[kind ?? ""];
    parts.push(`${short(left)} ${words}${by?.length ? ` (${by.join(", ")})` : ""}`);
  }
  return parts.join("; ");
}

const TWO_LINES = 41; // pixels: a number of an earlier layer, and biases
const WORKING =
  "working: the network runs once more to record the inputs of its layers; interrupt the kernel to stop";
const CONSTANT =
  "input channels that carry only biases here: trained away, or all their inputs are zero";
