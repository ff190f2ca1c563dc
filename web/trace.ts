// The entry of a trace's page: events are walked through, by hand or by themselves.

import { el, menu, readJson, setAttribute, setText, visible } from "./dom.ts";
import { listenToKeys } from "./keyboard.ts";
import { COLOURS, fromBase64, MINUS_INF, paint, paletteOf } from "./levels.ts";
import { ModuleTree } from "./module_tree.ts";
import { Timeline } from "./timeline.ts";

const DARK_PAGE = matchMedia("(prefers-color-scheme: dark)");
const SPEEDS = ["1", "2.5", "5", "10", "25"]; // events a second
const AT_FIRST = "2.5";
const NUMBERS = ["min", "max", "mean", "norm", "zeros", "NaN", "Inf"];

/** `at` is the place of the picture's levels in the page. */
interface EventPicture {
  at: number;
  caption: string;
  alt: string;
  low: string;
  high: string;
  diverging: boolean;
}

interface TraceEvent {
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

interface Facts {
  title: string;
  words: string;
  note: string;
  /** A module's name and class, in the order in which they are registered. */
  tree: Array<[name: string, type: string]>;
  /** A kind of hook, what it received, and whether it runs in the backward. */
  kinds: Array<[kind: string, received: string, back: boolean]>;
  palettes: Record<string, string>;
}

/** The picture of an event, its colours, and what it is of. */
class PictureView {
  palettes: Record<string, Uint32Array>;
  canvas = el("canvas", { class: "hv-map", role: "img" });
  none = el("div", { class: "hv-words" });
  bar = el("canvas", { "aria-hidden": "true" });
  ends = el("div", { class: "hv-ends hv-dim" });
  scale: HTMLDivElement;
  caption = el("div", { class: "hv-caption hv-dim" });
  root: HTMLDivElement;

  constructor(palettes: Record<string, string>) {
    this.palettes = Object.fromEntries(
      Object.entries(palettes).map(([name, text]) => [name, paletteOf(text)]),
    );
    this.scale = el(
      "div",
      { class: "hv-scale" },
      el("div", { class: "hv-bar" }, this.bar),
      this.ends,
    );
    this.root = el(
      "div",
      {},
      el("div", { class: "hv-frame" }, this.canvas, this.none),
      this.scale,
      this.caption,
    );
  }

  palette(name: "sequential" | "dark" | "diverging") {
    return this.palettes[name];
  }

  /**
   * @param said The event's picture; null if it was left out, undefined if there is none.
   * @param found Height, width and levels.
   * @param why There is none.
   */
  show(
    said: EventPicture | null | undefined,
    found: [number, number, string] | undefined,
    why: string,
  ) {
    visible(this.canvas, Boolean(found));
    this.scale.classList.toggle("hv-away", !found); // its room stays
    setText(this.none, found ? "" : said === null ? "this picture was left out of the page" : why);
    setText(this.caption, said ? said.caption : "");
    if (!found) return;
    const [height, width, text] = found;
    const { low, high, diverging } = said!;
    const levels = fromBase64(text);
    const palette = this.palette(
      !diverging ? "sequential" : DARK_PAGE.matches ? "dark" : "diverging",
    );
    paint(this.canvas, levels, width, height, palette);
    setAttribute(this.canvas, "aria-label", said!.alt);
    paint(this.bar, Uint8Array.from({ length: COLOURS }, (_, i) => i), COLOURS, 1, palette);
    const odd = levels.some((level) => level >= MINUS_INF)
      ? "; NaN magenta, Inf green, −Inf cyan"
      : "";
    setText(this.caption, said!.caption + odd);
    this.ends.replaceChildren(
      ...[low, ...(diverging ? ["0"] : []), high].map((end) => el("span", {}, end)),
    );
  }
}

/** All that is on the page. */
class TracePage {
  received: Map<string, string>;
  back: Set<string>;
  at: number;
  found: number[] = [];
  timer = 0;
  timeline: Timeline;
  tree: ModuleTree;
  picture: PictureView;
  kind = el("span", { class: "hv-chip hv-kind" });
  name = el("h3", { class: "hv-name" });
  type = el("span", { class: "hv-dim" });
  code = el("code", {
    class: "hv-code",
    tabindex: "0",
    role: "region",
    "aria-label": "code of this hook",
  });
  told = el("dl", { class: "hv-told" });
  speed: HTMLSelectElement;
  kinds: HTMLSelectElement;
  play: HTMLButtonElement;
  backward: HTMLButtonElement;
  typed = el("input", {
    type: "search",
    class: "hv-typed",
    "aria-label": "find modules",
    placeholder: "find a module …",
    spellcheck: "false",
  });
  count = el("span", { class: "hv-dim hv-count", role: "status" });
  bar: HTMLDivElement;

  constructor(
    root: HTMLElement,
    public facts: Facts,
    public events: TraceEvent[],
    public pictures: Array<[number, number, string]>,
  ) {
    this.received = new Map(facts.kinds.map(([kind, what]) => [kind, what]));
    this.back = new Set(facts.kinds.filter(([, , back]) => back).map(([kind]) => kind));
    this.at = 0;
    this.timeline = new Timeline(
      events.map((each) => ({ depth: each.depth, side: this.side(each) })),
      (place) => this.go(this.nearest(place)),
      (place) => this.words(place),
    );
    this.tree = new ModuleTree(facts.tree, (module) => this.goToModule(module));
    this.picture = new PictureView(facts.palettes);
    this.speed = menu(
      "speed",
      SPEEDS.map((each) => [each, `${each} a second`]),
      () => this.timer && this.run(),
    );
    this.speed.value = AT_FIRST;
    const kinds = facts.kinds.map(([kind]): [string, string] => [kind, `${kind} hooks`]);
    this.kinds = menu("kind of hook", [["", "all kinds of hook"], ...kinds], () => this.filter());
    this.play = this.button("play", () => this.turn());
    this.play.classList.add("hv-play");
    this.backward = this.button("first of backward", () => this.go(this.firstBackward()));
    this.typed.addEventListener("input", () => this.filter());
    this.bar = el(
      "div",
      { class: "hv-line hv-tools" },
      this.play,
      this.speed,
      this.backward,
      this.kinds,
      this.typed,
    );
    root.classList.add("hv-trace");
    root.replaceChildren(
      el(
        "div",
        { class: "hv-line hv-about-all" },
        el("h2", { class: "hv-name" }, facts.title),
        el("span", { class: "hv-dim" }, facts.words),
      ),
      ...(facts.note ? [el("p", { class: "hv-dim" }, facts.note)] : []),
      this.bar,
      this.timeline.root,
      this.legend(),
      el(
        "div",
        { class: "hv-seen" },
        this.tree.root,
        el(
          "div",
          { class: "hv-event" },
          el("div", { class: "hv-line" }, this.kind, this.name, this.type),
          el("div", { class: "hv-what-it-got" }, this.picture.root, this.told),
          this.code,
        ),
      ),
    );
    this.listen();
    this.filter();
  }

  button(name: string, press: () => void) {
    const made = el("button", { type: "button" }, name);
    made.addEventListener("click", press);
    return made;
  }

  legend() {
    const named = { forward: "forward", backward: "backward", unfired: "did not fire" };
    const used = new Set(this.timeline.ticks.map((each) => each.side));
    const shown = Object.entries(named).filter(([side]) => used.has(side));
    const swatch = (side: string) =>
      el("i", { class: "hv-swatch", "data-side": side, "aria-hidden": "true" });
    return el(
      "div",
      { class: "hv-dim hv-legend-of-ticks" },
      ...shown.map(([side, words]) => el("span", {}, swatch(side), words)),
      el("span", {}, "taller tick: deeper module"),
      this.count,
    );
  }

  listen() {
    const keys = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => this.go(this.found[0]),
      End: () => this.go(this.found[this.found.length - 1]),
      " ": () => this.turn(),
    };
    listenToKeys(document, keys, (target, key) => {
      if (target.closest("input, select")) return "";
      return key === " " && target.closest("button") ? "" : key;
    });
    DARK_PAGE.addEventListener("change", () => this.draw());
  }

  side(event: TraceEvent) {
    return !event.fired ? "unfired" : this.back.has(event.kind) ? "backward" : "forward";
  }

  moduleName(event: TraceEvent) {
    return this.facts.tree[event.module][0] || "(model)";
  }

  words(place: number) {
    const event = this.events[place];
    return `${event.index}: ${event.kind} of ${this.moduleName(event)}`;
  }

  /** Those of the chosen kind whose module holds every typed word. */
  filter() {
    const words = this.typed.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = this.facts.tree.map(([name, type]) =>
      `${name || "(model)"} ${type}`.toLowerCase()
    );
    const fits = text.map((each) => words.every((word) => each.includes(word)));
    const kind = this.kinds.value;
    this.found = [...this.events.keys()].filter((place) => {
      const event = this.events[place];
      return fits[event.module] && (!kind || event.kind === kind);
    });
    const total = this.events.length;
    setText(
      this.count,
      this.found.length === total ? `${total} events` : `${this.found.length} of ${total} events`,
    );
    this.timeline.only(new Set(this.found));
    this.tree.only(new Set(this.found.map((place) => this.events[place].module)));
    this.backward.disabled = this.firstBackward() === undefined;
    this.play.disabled = !this.found.length;
    if (!this.found.length) this.pause();
    this.go(this.nearest(this.at));
  }

  firstBackward(): number | undefined {
    return this.found.find((place) => this.side(this.events[place]) === "backward");
  }

  /** Of those that the filters leave. */
  nearest(place: number) {
    const nearer = (a: number, b: number) => (Math.abs(b - place) < Math.abs(a - place) ? b : a);
    return this.found.length ? this.found.reduce(nearer) : undefined;
  }

  /** @param module To its next event, from the last to the first again. */
  goToModule(module: number) {
    const own = this.found.filter((place) => this.events[place].module === module);
    this.go(own.find((place) => place > this.at) ?? own[0]);
  }

  step(by: number) {
    this.go(this.found[this.found.indexOf(this.at) + by]);
  }

  go(place: number | undefined) {
    if (place !== undefined) this.at = place;
    this.draw();
  }

  /** Play, or pause; at the end from the beginning. */
  turn() {
    if (this.timer) return this.pause();
    if (!this.found.length) return; // the filters leave nothing to play
    if (this.at === this.found[this.found.length - 1]) this.go(this.found[0]);
    this.run();
  }

  run() {
    clearInterval(this.timer);
    this.timer = setInterval(() => {
      this.step(1);
      if (this.at === this.found[this.found.length - 1]) this.pause();
    }, 1000 / Number(this.speed.value));
    setText(this.play, "pause");
  }

  pause() {
    clearInterval(this.timer);
    this.timer = 0;
    setText(this.play, "play");
  }

  draw() {
    const event = this.events[this.at];
    const side = this.side(event);
    const [, type] = this.facts.tree[event.module];
    this.timeline.show(this.at);
    this.tree.light(event.module, this.back.has(event.kind) ? "backward" : "forward");
    setText(this.kind, event.kind);
    setAttribute(this.kind, "data-side", side);
    setText(this.name, this.moduleName(event));
    setAttribute(this.name, "title", this.moduleName(event));
    setText(this.type, type);
    setText(this.code, event.code);
    const why = event.fired ? "no values came with it" : "it did not fire";
    this.picture.show(event.picture, this.pictures[event.picture?.at ?? -1], why);
    this.tell(event);
  }

  /**
   * Where it is, its numbers, the shapes of what it received, and what is odd about it; what may be
   * longer comes last, so that nothing moves.
   */
  tell(event: TraceEvent) {
    const { index, call, depth, when, numbers, shapes = [], note } = event;
    const groups: Array<Array<[string, string | number]>> = [
      [["event", index], ["call", call], ["depth", depth], ["time", when]],
      numbers ?? NUMBERS.map((name) => [name, "–"]),
      shapes.map((shape, place) => [place ? "" : this.received.get(event.kind)!, shape]),
      note ? [["note", note]] : [],
    ];
    const rows = groups.flatMap((group) =>
      group.flatMap(([name, value], place) => {
        const css = place ? "" : "hv-begins";
        return [el("dt", { class: css }, name), el("dd", { class: css }, String(value))];
      })
    );
    this.told.replaceChildren(...rows);
  }
}

const here = document.getElementById("hookviz");
if (here) new TracePage(here, readJson("facts"), readJson("events"), readJson("pictures"));
