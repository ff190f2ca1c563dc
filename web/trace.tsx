// The entry of a trace's page: events are walked through, by hand or by themselves.

import { Fragment, render } from "preact";
import { Canvas, Menu } from "./controls.tsx";
import { readJson } from "./dom.ts";
import { listenToKeys } from "./keyboard.ts";
import { COLOURS, fromBase64, MINUS_INF, paint, paletteOf } from "./levels.ts";
import { ModuleTree } from "./moduleTree.tsx";
import { followTheme, isDark } from "./theme.ts";
import { Timeline } from "./timeline.tsx";

const SPEEDS = ["1", "2.5", "5", "10", "25"]; // events a second
const AT_FIRST = "2.5";
const NUMBERS = ["min", "max", "mean", "norm", "zeros", "NaN", "Inf"];

/** `at` is the index of the picture's levels in the page. */
interface EventPicture {
  at: number;
  caption: string;
  alt: string;
  low: string;
  high: string;
  diverging: boolean;
}

interface TraceEvent {
  /** Set here. */
  side: "forward" | "backward" | "unfired";
  index: number;
  kind: string;
  module: number;
  call: number;
  depth: number;
  when: string;
  code: string;
  fired: boolean;
  note?: string;
  numbers?: Array<[string, string]>;
  shapes?: string[];
  /** Null if it was left out of the page. */
  picture?: EventPicture | null;
}

/** Height, width, and levels in base64. */
type Levels = [height: number, width: number, text: string];

interface Facts {
  title: string;
  words: string;
  note: string;
  /** A module's name and class, in the order in which they are registered. */
  tree: Array<[name: string, type: string]>;
  /** A kind of hook, what it received, and whether it runs in the backward. */
  kinds: Array<[kind: string, received: string, back: boolean]>;
  palettes: Record<"sequential" | "dark" | "diverging", string>;
}

/** The shown event, the filters, and the player. */
class Trace {
  at = 0;
  kind = ""; // empty: all kinds
  typed = "";
  speed = AT_FIRST;
  timer = 0;
  found: number[] = []; // the events that pass the filters
  received: Map<string, string>;
  isDark = false; // the page, when it was drawn last

  constructor(
    public root: HTMLElement,
    public facts: Facts,
    public events: TraceEvent[],
    public pictures: Levels[],
  ) {
    this.received = new Map(facts.kinds.map(([kind, what]) => [kind, what]));
    for (const event of events) {
      event.side = event.fired ? this.direction(event) : "unfired";
    }
    root.classList.add("hv-trace");
    root.replaceChildren();
    const keys = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => this.go(this.found[0]),
      End: () => this.go(this.last),
      " ": () => this.turn(),
    };
    listenToKeys(document, keys, (target, key) => {
      if (target.closest("select, input[type=search]")) return "";
      return key === " " && target.closest("button") ? "" : key;
    });
    followTheme(() => this.draw());
    this.filter({});
  }

  direction({ kind }: TraceEvent) {
    return this.facts.kinds.some(([name, , back]) => name === kind && back)
      ? "backward"
      : "forward";
  }

  moduleName(event: TraceEvent) {
    return this.facts.tree[event.module][0] || "(model)";
  }

  get last(): number | undefined {
    return this.found[this.found.length - 1];
  }

  get firstBackward() {
    return this.found.find((place) => this.events[place].side === "backward");
  }

  /** Keep the events of the chosen kind whose module contains every typed word. */
  filter(changes: { kind?: string; typed?: string }) {
    Object.assign(this, changes);
    const words = this.typed.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = this.facts.tree.map(([name, type]) => {
      const text = `${name || "(model)"} ${type}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    this.found = [...this.events.keys()].filter((place) => {
      const { module, kind } = this.events[place];
      return fits[module] && (!this.kind || kind === this.kind);
    });
    if (!this.found.length) this.pause();
    this.go(this.nearest(this.at));
  }

  /** The nearest event that passes the filters. */
  nearest(place: number) {
    const nearer = (a: number, b: number) => (Math.abs(b - place) < Math.abs(a - place) ? b : a);
    return this.found.length ? this.found.reduce(nearer) : undefined;
  }

  /** Go to the next event of a module, from its last to its first. */
  goToModule(module: number) {
    const own = this.found.filter((place) => this.events[place].module === module);
    this.go(own.find((place) => place > this.at) ?? own[0]);
  }

  step(by: number) {
    this.go(this.found[this.found.indexOf(this.at) + by]);
  }

  go(place: number | undefined) {
    this.at = place ?? this.at;
    this.draw();
  }

  /** Play, at the end from the beginning; or pause. */
  turn() {
    if (this.timer) this.pause();
    else if (this.found.length) {
      if (this.at === this.last) this.go(this.found[0]);
      this.run();
    }
  }

  run() {
    clearInterval(this.timer);
    this.timer = setInterval(() => {
      this.step(1);
      if (this.at === this.last) this.pause();
    }, 1000 / Number(this.speed));
    this.draw();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = 0;
    this.draw();
  }

  draw() {
    this.isDark = isDark(this.root);
    render(<TraceView trace={this} />, this.root);
  }
}

function TraceView({ trace }: { trace: Trace }) {
  const { facts, events, found } = trace;
  const event = events[trace.at];
  const name = trace.moduleName(event);
  const describe = (place: number) => {
    const { index, kind } = events[place];
    return `${index}: ${kind} of ${trace.moduleName(events[place])}`;
  };
  return (
    <>
      <div class="hv-line hv-about-all">
        <h2 class="hv-name">{facts.title}</h2>
        <span class="hv-dim">{facts.words}</span>
      </div>
      {facts.note && <p class="hv-dim">{facts.note}</p>}
      <Tools trace={trace} />
      <Timeline
        ticks={events}
        found={found}
        at={trace.at}
        isDark={trace.isDark}
        words={describe}
        onGo={(place) => trace.go(trace.nearest(place))}
      />
      <Legend trace={trace} />
      <div class="hv-seen">
        <ModuleTree
          modules={facts.tree}
          lit={event.module}
          side={trace.direction(event)}
          enabled={new Set(found.map((place) => events[place].module))}
          onPick={(module) => trace.goToModule(module)}
        />
        <div class="hv-event">
          <div class="hv-line">
            <span class="hv-chip hv-kind" data-side={event.side}>{event.kind}</span>
            <h3 class="hv-name" title={name}>{name}</h3>
            <span class="hv-dim">{facts.tree[event.module][1]}</span>
          </div>
          <div class="hv-what-it-got">
            <PictureOf event={event} trace={trace} />
            <Numbers event={event} received={trace.received.get(event.kind)!} />
          </div>
          <code class="hv-code" tabIndex={0} role="region" aria-label="code of this hook">
            {event.code}
          </code>
        </div>
      </div>
    </>
  );
}

function Tools({ trace }: { trace: Trace }) {
  const { facts, found, speed, timer, firstBackward } = trace;
  const kinds = facts.kinds.map(([kind]): [string, string] => [kind, `${kind} hooks`]);
  return (
    <div class="hv-line hv-tools">
      <button
        type="button"
        class="hv-play"
        disabled={!found.length}
        onClick={() => trace.turn()}
      >
        {timer ? "pause" : "play"}
      </button>
      <Menu
        label="speed"
        options={SPEEDS.map((value) => [value, `${value} a second`])}
        value={speed}
        onChoose={(value) => {
          trace.speed = value;
          if (timer) trace.run();
        }}
      />
      <button
        type="button"
        disabled={firstBackward === undefined}
        onClick={() => trace.go(firstBackward)}
      >
        first of backward
      </button>
      <Menu
        label="kind of hook"
        options={[["", "all kinds of hook"], ...kinds]}
        value={trace.kind}
        onChoose={(kind) => trace.filter({ kind })}
      />
      <input
        type="search"
        class="hv-typed"
        aria-label="find modules"
        placeholder="find a module …"
        spellcheck={false}
        value={trace.typed}
        onInput={(event) => trace.filter({ typed: event.currentTarget.value })}
      />
    </div>
  );
}

const SIDES = { forward: "forward", backward: "backward", unfired: "did not fire" };

function Legend({ trace: { events, found } }: { trace: Trace }) {
  const used = new Set<string>(events.map(({ side }) => side));
  const [count, total] = [found.length, events.length];
  return (
    <div class="hv-dim hv-legend-of-ticks">
      {Object.entries(SIDES).filter(([side]) => used.has(side)).map(([side, words]) => (
        <span key={side}>
          <i class="hv-swatch" data-side={side} aria-hidden="true" />
          {words}
        </span>
      ))}
      <span>taller tick: deeper module</span>
      <span class="hv-dim hv-count" role="status">
        {count === total ? `${total} events` : `${count} of ${total} events`}
      </span>
    </div>
  );
}

/** The picture of an event, its colours and its caption. */
function PictureOf({ event: { picture, fired }, trace }: { event: TraceEvent; trace: Trace }) {
  const [height, width, text] = trace.pictures[picture?.at ?? -1] ?? [0, 0, ""];
  const isShown = Boolean(picture && text);
  const { low, high, diverging = false, alt } = picture ?? {};
  const levels = fromBase64(text);
  const palette = paletteOf(
    trace.facts.palettes[!diverging ? "sequential" : trace.isDark ? "dark" : "diverging"],
  );
  const isOdd = levels.some((level) => level >= MINUS_INF);
  const none = picture === null
    ? "this picture was left out of the page"
    : fired
    ? "no values were recorded"
    : "it did not fire";
  const deps = [picture, trace.isDark];
  return (
    <div>
      <div class="hv-frame">
        <Canvas
          class="hv-map"
          role="img"
          aria-label={alt}
          hidden={!isShown}
          paint={(canvas) => isShown && paint(canvas, levels, width, height, palette)}
          deps={deps}
        />
        <div class="hv-words">{isShown ? "" : none}</div>
      </div>
      {/* Without a picture, its room stays. */}
      <div class={isShown ? "hv-scale" : "hv-scale hv-away"}>
        <div class="hv-bar">
          <Canvas
            aria-hidden="true"
            paint={(canvas) => paint(canvas, SCALE, COLOURS, 1, palette)}
            deps={deps}
          />
        </div>
        <div class="hv-ends hv-dim">
          <span>{low}</span>
          {diverging && <span>0</span>}
          <span>{high}</span>
        </div>
      </div>
      <div class="hv-caption hv-dim">
        {picture?.caption}
        {isOdd && "; NaN magenta, Inf green, −Inf cyan"}
      </div>
    </div>
  );
}

const SCALE = Uint8Array.from({ length: COLOURS }, (_, level) => level);

/**
 * Where an event is, its numbers, the shapes of what it received, and what is odd about it; what
 * may be longer comes last, so that nothing moves.
 */
function Numbers({ event, received }: { event: TraceEvent; received: string }) {
  const { index, call, depth, when, numbers, shapes = [], note } = event;
  const groups: Array<Array<[string, string | number]>> = [
    [["event", index], ["call", call], ["depth", depth], ["time", when]],
    numbers ?? NUMBERS.map((name) => [name, "–"]),
    shapes.map((shape, place) => [place ? "" : received, shape]),
    note ? [["note", note]] : [],
  ];
  return (
    <dl class="hv-told">
      {groups.flatMap((group) =>
        group.map(([name, value], place) => {
          const begins = place ? "" : "hv-begins";
          return (
            <Fragment key={`${name} ${place}`}>
              <dt class={begins}>{name}</dt>
              <dd class={begins}>{value}</dd>
            </Fragment>
          );
        })
      )}
    </dl>
  );
}

const root = document.getElementById("hookviz");
if (root) new Trace(root, readJson("facts"), readJson("events"), readJson("pictures"));
