// The entry of the widget: facts and settings are the model's traits, numbers come as messages.

import { App } from "./app.ts";
import { decoded } from "./arrays.ts";
import { Connection } from "./connection.ts";
import { afterPaint, sure } from "./dom.ts";
import { Gallery } from "./gallery.tsx";
import { Layer } from "./layer.ts";
import { Moves, Requests } from "./moves.ts";
import { pictureOf } from "./pictures.ts";
import { keepShortcutsFrom } from "./shortcuts.ts";
import type { WidgetModel } from "./model.ts";
import type {
  AnyQuestion,
  AnyReply,
  AnyRequest,
  HeatmapQuestion,
  LayerQuestion,
  SentQuestion,
  Settings,
  TargetFacts,
} from "./messages.d.ts";
import type { Part as Scores } from "./ablation.tsx";
import type { Part as Flips } from "./flip.tsx";
import type { Arrays, Numbers } from "./layer.ts";
import type { Found } from "./output.tsx";
import type { Field } from "./field.ts";
import type {
  At,
  ExactValue,
  Facts,
  Heat,
  HeatAt,
  NetworkGraph,
  Picture,
  Reason,
  ReasonQuestion,
  Reasons,
  Refused,
  Written,
} from "./source.ts";
import type { Found as Sides } from "./pair.tsx";
import type { Place } from "./state.ts";

const BUDGET = 300e6; // bytes of layers that are kept
const SOON = 60; // milliseconds before a setting is sent to the kernel
const PAUSE = 200; // and between two such messages: at each the front end shows a busy kernel

const AT_ONCE = 4; // questions at the kernel; the next one is asked when one of them is answered
const NO_KERNEL = "no kernel: run the cell again";
const IN_WORDS = new Set([
  "heatmap",
  "sides",
  "output",
  "field",
  "map",
  "why",
  "weights",
  "without",
]);

/** Of these one is asked at a time, so that the newest is next. */
const LATEST = new Set(["sides", "value", "why", "weights", "feature", "without", "prepare"]);

/** A part of the kernel's work: what it found so far, or why there is nothing. */
type WorkPart = Written & Partial<Omit<Scores, "none">> & Partial<Omit<Flips, "none" | "share">>;

/** What is made of the answers that are remembered. */
type Answers = { [Word in keyof Reasons]: Reason<Word> } & {
  layer: Layer | Refused;
  picture: Picture;
  heatmap: Heat;
  heatmaps: Record<string, Numbers>;
  sides: Sides;
  output: Found;
  field: Field;
  map: NetworkGraph | Refused;
  value: ExactValue;
  scores: ArrayLike<number>;
};
type Remembered = Extract<AnyQuestion, { ask: keyof Answers }>;

/** What the kernel sends, remembered. */
class KernelSource {
  live = true;
  switches = true; // channels of an input can be switched off, to see what follows
  listeners: Set<(now?: boolean) => void> = new Set();
  /** The one that was used last is last. */
  known: Map<string, unknown> = new Map();
  pending: Set<string> = new Set();
  parts: Map<string, (part: WorkPart | null) => void> = new Map(); // of work that is done in parts
  asked = 0;
  shownAnswer = { key: "", found: null as Found | null }; // the output's map, as it was last
  moves: Moves;
  requests: Requests;
  local = false; // whether the model's settings are just set here
  connection: Connection;
  refusals: Map<string, unknown> = new Map();

  constructor(public model: WidgetModel) {
    this.moves = new Moves(() => Math.max(model.get("seen") ?? 0, 0));
    this.requests = new Requests(
      this.moves,
      (request) => this.connection.send({ ...request, questions: this.next }),
    );
    model.on("msg:custom", (said: AnyReply | { answers: AnyReply[] }, buffers: DataView[] = []) => {
      let first = 0; // the arrays of several answers come one after the other
      for (const answer of "answers" in said ? said.answers : [said]) {
        const count = answer.arrays?.length ?? 0;
        this.arrive(answer, buffers.slice(first, first += count));
      }
    });
    this.connection = new Connection(model, () => this.tell(), () => this.end());
    model.on("change:facts", () => this.changed());
    for (const name of ["note", "overview", "pictures"]) {
      model.on(`change:${name}`, () => this.tell());
    }
    model.on("change:seen", () => {
      this.requests.next();
      this.found();
      this.tell();
    });
  }

  get facts(): Facts {
    const { model } = this;
    return { ...model.get("facts"), ...model.get("overview"), note: model.get("note") };
  }

  tell(now = false) {
    for (const listener of [...this.listeners]) listener(now);
  }

  /** Another run: nothing that was sent is true any more. */
  changed() {
    this.found();
    const { run } = this.model.get("facts");
    for (const store of [this.known, this.pending]) {
      for (const key of [...store.keys()]) if (!key.startsWith(`${run} `)) store.delete(key);
    }
    // Draw without waiting for a frame, but after the settings that came in the same message.
    queueMicrotask(() => {
      this.tell(true);
      afterPaint(() => this.connection.send({ ask: "here", key: "here" })); // brings the overview
    });
  }

  /** What is known, or null: then it is asked for, once. */
  get<Asked extends Remembered>(question: Asked): Answers[Asked["ask"]] | null {
    const key = this.keyOf(question);
    let found = this.known.get(key);
    if (found !== undefined) {
      this.known.delete(key);
      this.known.set(key, found);
    } else if (this.connection.isOver) found = this.unanswered(question.ask);
    else if (!this.isPending(question, key) && this.pending.size < AT_ONCE) {
      this.pending.add(key);
      this.connection.send({ key, ...question, stops: this.model.get("stops") });
    }
    return (found ?? null) as Answers[Asked["ask"]] | null;
  }

  /** Whether this question, or one whose answer has to come before, is asked. */
  isPending({ ask }: Remembered, key: string) {
    return LATEST.has(ask)
      ? [...this.pending].some((each) => each.includes(`"ask":"${ask}"`))
      : this.pending.has(key);
  }

  keyOf(question: AnyQuestion) {
    return `${this.facts.run} ${JSON.stringify(question)}`;
  }

  /** The target that was asked for last, as it is typed, if what is shown is not of it yet. */
  get asking() {
    return this.requests.written;
  }

  /** Why nothing new comes; or empty. */
  get gone() {
    return this.connection.words;
  }

  get refused() {
    return this.connection.refused;
  }

  /** Nothing that was asked for will come. */
  end() {
    this.pending.clear();
    this.requests.end();
    for (const key of [...this.parts.keys()]) this.take({ key, none: NO_KERNEL }, {});
  }

  /** What stands in the place of an answer, where that can be words. */
  unanswered(ask: keyof Answers) {
    if (!IN_WORDS.has(ask)) return null;
    const said = { ask, none: NO_KERNEL, status: "unknown", why: NO_KERNEL };
    if (!this.refusals.has(ask)) this.refusals.set(ask, this.made(said as unknown as AnyReply, {}));
    return this.refusals.get(ask);
  }

  /** What is not there yet, in words. */
  get waiting() {
    return this.connection.isOver ? NO_KERNEL : "on its way …";
  }

  /** The kernel has answered. */
  found() {
    this.connection.answered(Boolean(this.pending.size || this.requests.doing));
  }

  arrive(said: AnyReply, buffers: DataView[]) {
    this.pending.delete(said.key);
    this.found();
    if (said.lost) {
      this.take({ ...said, none: "interrupted" }, {});
      return this.tell();
    }
    const { run } = this.model.get("facts");
    const own = Number.parseInt(said.key);
    if (own < run) return this.take(said, null);
    const arrays: Record<string, Numbers> = {};
    (said.arrays ?? []).forEach((coding, place) => {
      const { buffer, byteOffset, byteLength } = buffers[place];
      arrays[coding.name] = decoded(coding, new Uint8Array(buffer, byteOffset, byteLength));
    });
    if (this.parts.has(said.key)) return this.take(said, arrays);
    this.known.set(said.key, this.made(said, arrays));
    this.forget();
    if (own === run) this.tell(); // else the facts of its run are on their way
  }

  made(said: AnyReply, arrays: Record<string, Numbers>) {
    if (said.ask === "layer" && !said.none) {
      return new Layer(said.header, arrays as unknown as Arrays, this.facts.choices.order);
    }
    if (said.ask === "picture") return pictureOf(arrays.pixels.values, said.header);
    if (said.ask === "heatmap") {
      return arrays.heat ?? { values: null, shape: [], ...(said.none ? { none: said.none } : {}) };
    }
    if (said.ask === "value") {
      return { maps: numberOf(said.maps), gradients: numberOf(said.gradients) };
    }
    if (said.ask === "scores") return arrays.scores?.values ?? [];
    return said.ask === "heatmaps" ? arrays : { ...said, ...arrays, arrays };
  }

  /** Those that were not used for long go. */
  forget() {
    let bytes = 0;
    for (const [key, value] of [...this.known].reverse()) {
      bytes += (value as { bytes?: number }).bytes ?? 1000;
      if (bytes > BUDGET) this.known.delete(key);
    }
  }

  /** What a question is about; maps of attention are of the chosen query. */
  part({ layer, call, sample, depth, place }: At) {
    const attends = this.facts.layers.some((each) => each.attends && each.name === layer);
    return { layer, call, sample, depth, ...(attends ? { place } : {}) };
  }

  /**
   * Let the kernel work a moment, so that it can be stopped.
   * @param told Gets null if the network has changed meanwhile.
   */
  work(question: AnyQuestion, told: (part: WorkPart | null) => void) {
    this.asked += 1;
    const key = `${this.facts.run} ${question.ask} ${this.asked}`;
    this.parts.set(key, told);
    if (this.connection.refuses()) queueMicrotask(() => this.take({ key, none: NO_KERNEL }, {}));
    else this.connection.send({ key, ...question });
  }

  /** With the last part of it comes the order. */
  ablate(at: At, told: (part: Scores | null) => void) {
    this.work({ ask: "ablation", ...this.part(at) }, (part) => {
      const arrays = part?.arrays;
      const own = this.keyOf(this.question(at));
      const known = this.known.get(own);
      if (arrays?.order && known instanceof Layer) {
        this.known.set(own, known.ablated(arrays.drops, arrays.order));
      }
      told(part && { ...part, order: arrays?.order?.values ?? null });
    });
  }

  /** Switch channels off, in their order, until the prediction changes. */
  flip(at: At, channels: number[], told: (part: Flips | null) => void) {
    this.work({ ask: "flip", ...this.part(at), channels }, (part) => {
      told(part && { ...part, curve: part.curve?.map((score) => score ?? NaN) } as Flips);
    });
  }

  take(said: { key: string; none?: string | null }, arrays: Record<string, Numbers> | null) {
    const told = this.parts.get(said.key);
    this.parts.delete(said.key);
    told?.(arrays && { ...said, arrays });
  }

  /** This view without hookviz. */
  code(settings: Settings & Record<string, unknown>) {
    return this.written({ ask: "code", settings });
  }

  /** This view as a file. */
  file(ending: string, settings: Settings & Record<string, unknown>) {
    return this.written({ ask: "file", ending, settings });
  }

  /** What the kernel writes for once. */
  written(question: AnyQuestion): Promise<Written> {
    const none = "the network has changed: once more";
    return new Promise((resolve) =>
      this.work(question, (said) => resolve(said ?? { none, arrays: {} }))
    );
  }

  get thumbnails() {
    return this.model.get("pictures");
  }

  get busy() {
    return this.requests.doing > 0;
  }

  get requested() {
    return this.requests.added;
  }

  /** Whether the kernel has handled all that was asked of it. */
  get idle() {
    return !this.requests.doing && this.pending.size === 0;
  }

  question(at: At): Omit<LayerQuestion, "key"> {
    const { shown_after } = at;
    return { ask: "layer", ...this.part(at), shown_after, ...runIn(at) };
  }

  layer(at: At) {
    const found = this.get(this.question(at));
    // The heatmap in the same round trip.
    if (!found && this.facts.methods.includes(at.heatmap!)) this.heat(at as HeatAt);
    return found instanceof Layer ? found : null;
  }

  heatQuestion(at: HeatAt): Omit<HeatmapQuestion, "key"> {
    return { ask: "heatmap", ...this.part(at), method: at.heatmap, ...runIn(at) };
  }

  /** What the view asks first about a new run. A heatmap for which the model runs has to wait. */
  get next(): SentQuestion[] {
    const at: Settings = { ...this.model.get("settings"), ...this.moves.unhandled };
    const layer = this.question(at);
    const found = this.known.get(this.keyOf(layer));
    const place = found instanceof Layer && !this.facts.blind ? found.header.place : null;
    const questions: AnyQuestion[] = [
      layer,
      ...(place ? [{ ask: "picture" as const, of: place }] : []),
      ...(this.facts.methods.includes(at.heatmap) ? [this.heatQuestion(at)] : []),
    ];
    return questions.map((question) => ({ ...question, key: JSON.stringify(question) }));
  }

  heat(at: HeatAt) {
    const { layer, sample, depth, heatmap: method } = at;
    if (at.ofAll) return this.get({ ask: "heatmaps", sample, depth, method })?.[layer] ?? null;
    return this.get(this.heatQuestion(at));
  }

  field(at: At) {
    return this.get({ ask: "field", ...this.part(at) });
  }

  /** @param place of which sample, at which relative depth, of which input */
  picture(place: [number, number, number] | null, run?: string) {
    if (this.facts.blind || !place) return null;
    return this.get({ ask: "picture", of: place, ...runIn({ run }) });
  }

  target(number: number) {
    this.edit({ set: "target", number });
    this.tell();
  }

  /** A target as it is written in Python. */
  write(written: string) {
    this.edit({ set: "target", written });
    this.tell();
  }

  /** A function cannot be written: it stays. */
  retarget({ number, written, chosen }: TargetFacts) {
    if (!chosen) this.requests.add({ set: "target" });
    else if (written === String(number)) this.requests.add({ set: "target", number });
    else if (written) this.requests.add({ set: "target", written });
  }

  /** The heatmaps of both sides of a target that is a difference. */
  sides(at: HeatAt) {
    return this.get({ ask: "sides", ...this.part(at), method: at.heatmap });
  }

  /**
   * A map of the output; until it is there the same one of the run before, which may be clicked.
   * @param which Of the output's maps.
   */
  answer(which: number, channel: number | null, sample: number) {
    const question = { ask: "output" as const, which, channel, sample };
    const { name, size } = sure(this.facts.answer?.maps[which]);
    const key = JSON.stringify([question, name, size]);
    const found = this.get(question);
    if (found && !found.none) this.shownAnswer = { key, found };
    return found ?? (this.shownAnswer.key === key ? this.shownAnswer.found : null);
  }

  edit(what: AnyRequest) {
    if (!this.connection.refuses()) this.requests.add(what);
  }

  /** Terms of a value. */
  why<Asked extends ReasonQuestion>(question: Asked) {
    return this.get(question) as Reason<Asked["ask"]> | null;
  }

  map({ sample, depth }: At) {
    return this.get({ ask: "map", sample, depth });
  }

  /** Ask once more for what was stopped. */
  retry() {
    for (const [key, found] of this.known) if ((found as Refused).stopped) this.known.delete(key);
  }

  /** What the channels are sorted by; none where there is nothing to sort by. */
  scores(at: At, place: Place, reference: number) {
    const which = at.order === "similarity" ? { reference_channel: reference } : { place };
    return this.get({ ...which, ...this.question(at), ask: "scores", order: at.order! });
  }

  /** The tensor's own numbers, where those that came were rounded or averaged. */
  value(at: At, row: number, column: number) {
    const layer = this.layer(at);
    const [height, width] = layer?.header.size ?? [];
    const own = !layer?.arrays.maps.approximate && layer?.height === height &&
      layer?.width === width;
    if (!layer || own) return null;
    const { shown_after } = at;
    const channel = at.channel!;
    return this.get({ ask: "value", ...this.part(at), shown_after, channel, row, column });
  }

  /** Fetch one layer at a time, so that the shown layer never waits for prefetched ones. */
  prefetch(at: At, layers: string[]) {
    if (this.pending.size) return;
    for (const layer of layers) if (!this.layer({ ...at, layer })) return;
  }
}

const runIn = ({ run }: Pick<At, "run">) => (run ? { shown_run: run } : {});

/** @param text As Python writes a number. */
function numberOf(text: string | null | undefined) {
  return !text ? null : Number(text.replace("inf", "Infinity"));
}

const sources: Map<string, KernelSource> = new Map();

function sourceOf(model: WidgetModel) {
  const token = model.get("token");
  const known = sources.get(token) ?? new KernelSource(model);
  sources.set(token, known);
  return known;
}

/**
 * The settings follow, a few times a second; what the kernel sets goes first, unless it was changed
 * here since.
 */
function follow(model: WidgetModel, app: App, source: KernelSource) {
  const { moves } = source;
  const { state } = app;
  let told = moves.count;
  let timer = 0;
  let last = -Infinity;
  let taking = false; // what comes from elsewhere
  const send = () => {
    timer = 0;
    last = performance.now();
    told = moves.count;
    const names = Object.keys(moves.unhandled);
    if (!names.length) return; // a request has told of it
    source.local = true;
    model.set("settings", state.settings);
    model.set("moved", { count: moves.count, names });
    source.local = false;
    model.save_changes();
  };
  state.onChange((changed) => {
    if (taking) return;
    const own = Object.entries(state.settings).filter(([name]) => changed.has(name));
    if (!own.length) return;
    moves.note(Object.fromEntries(own));
    if (!timer && moves.count > told) {
      timer = setTimeout(send, Math.max(SOON, last + PAUSE - performance.now()));
    }
  });
  const changed = () => {
    const now = state.settings;
    const settings = source.local
      ? model.get("settings")
      : moves.merged({ ...model.get("settings") });
    const others = Object.entries(settings).filter(([name, value]) =>
      JSON.stringify(value) !== JSON.stringify(now[name])
    );
    taking = true;
    state.set(Object.fromEntries(others));
    taking = false;
  };
  model.on("change:settings", changed);
  model.on("change:seen", changed);
  return () => {
    clearTimeout(timer);
    if (timer && !source.gone) send(); // a view may end before its last change is told
    model.off("change:settings", changed);
    model.off("change:seen", changed);
  };
}

export default {
  /** Say that the front end runs, once there is something to show: so nothing flickers. */
  initialize({ model }: { model: WidgetModel }) {
    const source = sourceOf(model);
    const ready = () => {
      const layer = source.layer(model.get("settings"));
      if (
        !layer || !(source.facts.blind || !layer.header.place || source.picture(layer.header.place))
      ) return;
      source.listeners.delete(ready);
      model.set("alive", true);
      model.save_changes();
    };
    source.listeners.add(ready);
    ready();
    return () => {
      source.connection.leave();
      sources.delete(model.get("token"));
    };
  },

  render({ model, el: root }: { model: WidgetModel; el: HTMLElement }) {
    root.classList.add("hookviz-app");
    keepShortcutsFrom(root);
    const source = sourceOf(model);
    const settings = { ...model.get("settings"), ...source.moves.unhandled };
    const app = new App(root, source, settings, root);
    new Gallery(app, source);
    const end = follow(model, app, source);
    return () => {
      end();
      app.end();
    };
  },
};
