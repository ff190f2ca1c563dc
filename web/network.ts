// A source of pictures that runs the network itself, in a worker: another input, another class, or
// another factor of a channel is another answer, and only what is looked at is asked for.

import { CAMS } from "./cams.ts";
import { className, rankedClasses } from "./classes.ts";
import { noGradient } from "./heatmaps.ts";
import { averaged, type Header, Layer } from "./layer.ts";
import { rangeOf, toLevels } from "./levels.ts";
import { layerArrays } from "./measures.ts";
import { pictureOf } from "./pictures.ts";
import { numbersOf, prepared } from "./resize.ts";
import { Answer } from "./runner.ts";
import { OCCLUSION, Running } from "./running.ts";
import type { Scores } from "./running.ts";
import { withStroke } from "./strokes.ts";
import { readTarget } from "./targets.ts";
import { answered } from "./walk.ts";
import type { Runner, Tensor } from "./runner.ts";
import type { Rgb } from "./resize.ts";
import type { Found } from "./output.tsx";
import type { Goal } from "./targets.ts";
import type { Part } from "./ablation.tsx";
import type {
  At,
  Facts,
  HeatAt,
  NetFacts,
  NetworkGraph,
  Picture,
  ReasonQuestion,
  Refused,
} from "./source.ts";
import type { HeldAnswers } from "./walk.ts";
import type { AnyRequest, OutputMap, TargetFacts } from "./messages.d.ts";

export interface CallFacts {
  name: string;
  layer: string;
  call: number;
  channels: number;
  start: number;
  targets: string[];
  offset: number;
  strides: number[];
  shape: number[];
  header: Header;
}
/** The facts of a page that runs its network. */
export type PageFacts = Facts & { net: NetFacts };
interface Factor {
  layer: string;
  channels: [number];
  factor: number;
  key: number;
  words: string;
}
export interface Input {
  values: Float32Array;
  shape: number[];
  picture: Picture | null;
  unpainted?: Input;
  /** Different for each, but one for all frames of the camera: those are one step of the history. */
  key?: number;
}

/** Maps and gradients of a call, one behind the other, and how many of which size. */
interface Pair {
  maps: Float32Array;
  gradients: Float32Array | null;
  shape: [count: number, height: number, width: number];
}

const TOP = 5; // classes that are shown
const LIKELIEST = -1; // the graph's own target: the class with the largest logit
const MAP_SIDE = 32; // of a picture in the map, at most, as in `hookviz.view.map`

/** The network, its input, its factors and its answers. */
export class NetworkSource {
  /** The map as it was last. */
  drawn: NetworkGraph | Refused | null = null;
  /** The latest maps of the output. */
  shownAnswers: Map<string, Found> = new Map();
  first: PageFacts; // as the page opened
  running: Running;
  live = true;
  busy = false; // a stroke is in the picture at once, before the network has run
  link = false;
  listeners: Set<(now?: boolean) => void> = new Set();
  original: Input;
  given = 0; // inputs that were asked for, each with its number
  taken = 0; // number of the one that is shown
  used = 0; // the largest key of an input
  edits: Factor[] = [];
  known: Factor[] = []; // all edits that there have been, by their key
  targetClass: number | null;
  /** The target, where it is not one class. */
  goal: Goal | null = null;
  write: ((written: string) => void) | undefined;
  /** Of inputs that are none. */
  zeros: Map<string, Float32Array> = new Map();
  follows: boolean;
  past: Input[] = [];
  /** The run that goes on. */
  going: Promise<void> | null = null;
  failed = "";
  /** Outputs that the latest drawing asked for. */
  looked = {
    edited: new Set<string>(),
    original: new Set<string>(),
  };
  followed: Input;
  /** Whose predictions the facts have. */
  told: Answer | null = null;
  calls: CallFacts[];
  answers: { edited: Answer; original: Answer };

  /**
   * @param held Answers about the weights, see `walk.ts`.
   * @param graph That of the map: nodes, edges, and the sizes of the layers' pictures.
   * @param batch The inputs in the page.
   */
  constructor(
    public facts: PageFacts,
    public runner: Runner,
    public input: Input,
    public held: HeldAnswers,
    public graph: NetworkGraph | Refused,
    public batch: Input[] = [],
  ) {
    this.first = facts;
    this.running = new Running(this);
    this.original = input;
    this.targetClass = facts.target.number;
    const { inputs } = facts.net;
    this.write = inputs.classes || "weights:0" in inputs
      ? (written) => this.toGoal(written)
      : undefined;
    this.follows = facts.net.follows; // the target is the likeliest class of each picture
    this.followed = input; // whose likeliest class the target is
    this.calls = facts.net.layers;
    this.answers = this.fresh(input);
  }

  /** Answers for an input: with the factors, and without them for the comparison. */
  fresh(input: Input) {
    const number = this.follows && !this.edits.length && input !== this.followed
      ? LIKELIEST
      : this.targetClass;
    const target = this.goal ?? number;
    const edited = new Answer(this.feeds(input, this.edits, target));
    return {
      edited,
      original: this.edits.length ? new Answer(this.feeds(input, [], target)) : edited,
    };
  }

  feeds(input: Input, edits: Factor[], target: number | null | Goal) {
    const { inputs } = this.facts.net;
    const [goal, number] = typeof target === "object" ? [target, null] : [null, target];
    const feeds: Record<string, Tensor> = { input: { values: input.values, shape: input.shape } };
    if (inputs.own) {
      feeds.own = { shape: [1], values: Float32Array.of(goal && !goal.weights.classes ? 0 : 1) };
    }
    for (const [name, shape] of Object.entries(inputs as Record<string, number[]>)) {
      if (name.startsWith("weights:")) {
        feeds[name] = { shape, values: goal?.weights[name] ?? this.zerosOf(name, shape) };
      }
    }
    if (goal?.weights.classes) {
      feeds.classes = { shape: inputs.classes, values: goal.weights.classes };
    } else if (inputs.classes) {
      const own = number === this.facts.net.number && this.facts.net.classes;
      const values = new Float32Array(inputs.classes[1]);
      if (own || number === null) values.set(this.facts.net.classes!);
      else if (number !== LIKELIEST) values[number] = 1;
      feeds.classes = { shape: inputs.classes, values };
    }
    if (inputs.scales) {
      const values = new Float32Array(inputs.scales[0]).fill(1);
      for (const { layer, channels: [channel], factor } of edits) {
        const { start } = this.call(layer);
        values[start + channel] = factor * values[start + channel];
      }
      feeds.scales = { shape: inputs.scales, values };
    }
    return feeds;
  }

  /** The same object each time: feeds are compared. */
  zerosOf(name: string, shape: number[]) {
    const known = this.zeros.get(name) ??
      new Float32Array(shape.reduce((product, size) => product * size, 1));
    this.zeros.set(name, known);
    return known;
  }

  /** Whether the page shows its own picture, without edits. */
  get isFirst() {
    return this.input === this.original && !this.edits.length;
  }

  /** Whether the target sends a gradient to a layer. */
  graded({ targets }: CallFacts, goal: Goal | null = this.goal) {
    const from = goal ? Object.keys(goal.weights) : ["own"];
    return from.some((each) => targets.includes(each === "classes" ? "own" : each));
  }

  reaches = (layer: string) => this.calls.some((each) => each.layer === layer && this.graded(each));

  call(name: string): CallFacts {
    const found = this.calls.find((each) => each.name === name);
    if (found) return found;
    const near = this.calls.map((each) => each.name).slice(0, 6);
    throw new Error(`No layer of this page is called '${name}'; there are: ${near.join(", ")}, …`);
  }

  /** @param now Whether to draw at once, without waiting for a frame. */
  tell(now: boolean = false) {
    for (const listener of [...this.listeners]) listener(now);
  }

  /** Another question: what was asked before is not wanted any more, but the same outputs are. */
  changed(answers: { edited: Answer; original: Answer } = this.fresh(this.input)) {
    const { original } = this.answers;
    if (sameFeeds(original.feeds, answers.original.feeds)) {
      answers = this.edits.length ? { ...answers, original } : { edited: original, original };
    }
    this.answers = answers;
    const run_names = this.edits.length ? ["original", "edited", "difference"] : [];
    const { isFirst, first: { answer, verdict }, facts } = this;
    const boxed = !isFirst && Boolean(answer?.boxes.length);
    this.facts = {
      ...facts,
      edits: [...this.edits],
      run_names,
      answer: answer && boxed ? { ...answer, boxes: [] } : answer,
      verdict: isFirst ? verdict : { text: "", kind: "", layer: null, details: "" },
      notes: [...facts.net.notes, ...(isFirst ? [] : [OTHER]), ...(boxed ? [NO_BOXES] : [])],
      note: "", // it was about what was asked before
      run: facts.run + 1,
    };
    answers.edited.get(this.wantedOf("edited"));
    if (this.edits.length) answers.original.get(this.wantedOf("original"));
    this.predicted();
    this.pump();
    this.tell();
  }

  /** What is looked at of an answer, whatever it answers. */
  wantedOf(which: "edited" | "original") {
    return [
      ...(this.facts.net.outputs.includes("logits") ? ["logits"] : []),
      ...this.looked[which],
    ];
  }

  /** Ask the worker for what is wanted now, if it rests. */
  pump() {
    this.going ??= this.work();
    return this.going;
  }

  async work() {
    await null; // all that one drawing asks for is one run
    const next = this.next;
    try {
      if (next) next.add(await this.runner.run(next.feeds, [...next.wanted]));
      this.failed = next ? "" : this.failed;
    } catch (error) {
      next?.wanted.clear();
      this.failed = (error as Error).message;
      this.facts = { ...this.facts, note: this.failed };
    }
    this.going = null;
    if (!next) return;
    this.predicted();
    this.pump();
    this.tell(!this.next); // the worker goes on before anything is drawn
  }

  /** The first answer whose outputs are still to be computed. */
  get next() {
    return [this.answers.edited, this.answers.original].find((each) => each.wanted.size);
  }

  /** What is known of these outputs; null if any is missing, which is then computed. */
  ask(answer: Answer, names: string[]) {
    const looked = this.looked[answer === this.answers.edited ? "edited" : "original"];
    for (const name of names) looked.add(name);
    const found = answer.get(names);
    if (!found) this.pump();
    return found;
  }

  /** Wait for outputs: in one run with all that is wanted. */
  async until(answer: Answer, names: string[]) {
    while (answer.missing(names).length) {
      if (answer !== this.answers.edited && answer !== this.answers.original) {
        answer.add(await this.runner.run(answer.feeds, answer.missing(names)));
      } else {
        answer.get(names);
        await this.pump();
        if (this.failed) throw new Error(this.failed);
      }
    }
  }

  /** The predictions of the answers that are there. */
  predicted() {
    const { edited, original } = this.answers;
    const logits = edited.known.get("logits");
    if (this.told === edited || !edited.known.size) return;
    if (!logits) {
      if (!this.facts.net.outputs.includes("logits")) this.aimed();
      return;
    }
    if (this.follows && this.edits.length === 0) {
      this.followed = this.input;
      const top = logits.values.indexOf(Math.max(...logits.values));
      if (top >= 0) this.targetClass = top;
      edited.feeds = this.feeds(this.input, [], this.targetClass); // which its gradients are of
    }
    const before = this.edits.length ? original.known.get("logits") : null;
    if (this.edits.length && !before) return;
    const target = this.goal ? null : this.targetClass;
    // Like `predictions_of` of hookviz.view.predictions.
    const predictions = rankedClasses(
      logits.values,
      this.facts.classes,
      before?.values ?? null,
    ).filter(({ number }, rank) => rank < TOP || number === target);
    this.facts = { ...this.facts, predictions };
    this.aimed();
  }

  /** The answer is here: the facts are of what it was asked for. */
  aimed() {
    const { goal, targetClass: number, facts, first } = this;
    const { count } = facts.classes;
    const name = number === null ? facts.target.name : className(facts.classes, number);
    const chosen = !this.follows;
    const ofClass = count && number !== facts.net.number
      ? { name, number, written: String(number), chosen }
      : { ...facts.net.target, chosen };
    const target = goal
      ? { name: goal.name, number: null, written: goal.written, chosen }
      : ofClass;
    this.told = this.answers.edited;
    // A network of rounded weights may have another likeliest class than the notebook's.
    const isOpening = this.isFirst && !goal && number === facts.net.number;
    this.facts = {
      ...facts,
      target,
      opened: isOpening ? first.opened : null,
      scored: facts.scored || Boolean(goal),
      summary: goal && !facts.scored // now there is a gradient
        ? facts.summary.filter((fact) => !/^no (class scores|gradient)/.test(fact))
        : facts.summary,
    };
  }

  // What the app asks for

  shownRun(at: At) {
    return this.edits.length ? (at.shown_run ?? "edited") : "edited";
  }

  /** A call of a layer; a layer that runs less often has its last one shown. */
  callOf(layer: string, call: number = 0) {
    const last = this.calls.filter((each) => each.layer === layer).length - 1;
    const shown = Math.min(call, last);
    return this.call(shown ? `${layer}#${shown}` : layer);
  }

  layer(at: At): Layer | null {
    for (const each of Object.values(this.looked)) each.clear(); // a drawing begins
    const facts = this.callOf(at.layer, at.call);
    const run = this.shownRun(at);
    const pair = this.pair(run, facts, at.depth);
    if (!pair) return null;
    const answer = this.answers[run === "original" ? run : "edited"];
    const scores = answer.made.get(`score drops ${facts.name}`) as Scores | undefined;
    return answer.once(`layer ${run} ${facts.name} ${at.depth} ${Boolean(scores)}`, () => {
      const { maps, gradients, shape } = pair;
      const orders = this.facts.choices.order;
      const header = {
        ...facts.header,
        size: shape.slice(1),
        signed: maps.some((value) => value < 0),
        which: this.edits.length ? `, ${run}` : "",
      };
      const own = new Layer(header, layerArrays(maps, gradients, shape, orders.slice(1)), orders);
      return scores ? own.ablated(scores.drops, scores.order) : own;
    });
  }

  /**
   * Maps and gradients of a run, or of the difference of both, as they are drawn; null while they
   * are on their way.
   */
  pair(run: string, facts: CallFacts, depth: number = 0): Pair | null {
    if (run === "difference") {
      const [now, before] = ["edited", "original"].map((one) => this.pair(one, facts, depth));
      return now && before && this.answers.edited.once(`difference ${facts.name} ${depth}`, () => ({
        maps: less(now.maps, before.maps),
        gradients: now.gradients && before.gradients && less(now.gradients, before.gradients),
        shape: now.shape,
      }));
    }
    const answer = this.answers[run as "edited" | "original"];
    const names = [
      `activation:${facts.name}`,
      ...(this.graded(facts) ? [`gradient:${facts.name}`] : []),
    ];
    const { outputs } = this.facts.net;
    if (!this.ask(answer, ["logits", ...names].filter((name) => outputs.includes(name)))) {
      return null;
    }
    return answer.once(`pair ${facts.name} ${depth}`, () => {
      const [maps, gradients = null] = names.map((name) =>
        arranged(answer.known.get(name)!, facts, depth)
      );
      return { maps, gradients, shape: flatShape(facts.shape) };
    });
  }

  heat(at: HeatAt) {
    if (at.heatmap === OCCLUSION) return this.occluded(at);
    if (!at.ofAll && !at.script) this.running.leave();
    const facts = this.callOf(at.layer, at.ofAll ? Infinity : at.call);
    const cam = CAMS[at.heatmap];
    if (!cam) return NONE;
    if (!this.graded(facts) && at.heatmap !== "activation") {
      return { ...NONE, none: noGradient(this) };
    }
    const name = `${at.heatmap} ${facts.name} ${at.depth}`;
    const heatOf = (run: "edited" | "original") => {
      const pair = this.pair(run, facts, at.depth);
      return pair && this.answers[run].once(`heat ${name}`, () => {
        const { maps, gradients, shape: [count, height, width] } = pair;
        const values = cam({ maps, gradients: gradients ?? maps, count, size: height * width });
        return { values, shape: [height, width] };
      });
    };
    const run = this.shownRun(at);
    if (run !== "difference") return heatOf(run as "edited" | "original");
    const [now, before] = [heatOf("edited"), heatOf("original")];
    return now && before && this.answers.edited.once(
      `difference of heat ${name}`,
      () => ({ values: less(now.values, before.values), shape: now.shape }),
    );
  }

  /** The heatmap that runs the network many times. */
  occluded(at: At) {
    const none = this.refusal(at);
    if (none) return { ...NONE, none };
    const answer = this.answers[this.shownRun(at) as "edited" | "original"];
    return this.ask(answer, ["logits"]) && this.running.heat(answer);
  }

  /** Whether the target is values of the output that are no class scores. */
  get beyondClasses() {
    return Boolean(this.goal && !this.goal.weights.classes);
  }

  /** Why it is missing; empty if it is not. */
  refusal(at: At) {
    if (this.shownRun(at) === "difference") return "of one run: choose edited or original";
    return this.beyondClasses ? OF_CLASSES : "";
  }

  /**
   * The map of the network, with a picture of each layer from this page's own run; until that is
   * there the pictures of the run before.
   */
  map(at: At) {
    const { graph } = this;
    if (graph.none !== undefined) return graph;
    const answer = this.shownRun(at) === "original" ? this.answers.original : this.answers.edited;
    const shown = Object.keys(graph.sizes).map((layer) => this.callOf(layer, at.call));
    if (!this.ask(answer, shown.map(({ name }) => `activation:${name}`))) return this.drawn;
    this.drawn = answer.once(`map ${at.call} ${at.depth}`, () => {
      const sizes = Object.values(graph.sizes);
      const levels = shown.flatMap((facts, n) =>
        sizes[n][0]
          ? [...levelsOf(answer.known.get(`activation:${facts.name}`)!, facts, at.depth)]
          : []
      );
      return { ...graph, arrays: { pictures: { values: Uint8Array.from(levels) } } };
    });
    return this.drawn;
  }

  /**
   * A map of the output, the same object as long as it does not change; until it is there that of
   * the run before.
   */
  answer(which: number, channel: number | null) {
    const map = this.facts.answer?.maps[which];
    if (!map) return null;
    const key = `answer ${which} ${channel ?? "all"}`;
    const found = this.ask(this.answers.edited, [`answer:${which}`]);
    if (!found) return this.shownAnswers.get(key) ?? null;
    const made = this.answers.edited.once(key, () => drawnOutput(map, found[0].values, channel));
    this.shownAnswers.set(key, made);
    return made;
  }

  field(at: At) {
    return this.callOf(at.layer, 0).header.field ?? null;
  }

  picture() {
    return this.input.picture;
  }

  target(number: number) {
    this.follows = false;
    if (number === this.targetClass && !this.goal) return this.say("");
    this.goal = null;
    this.targetClass = number;
    this.changed();
  }

  /** A target as it is written in Python; what is none is said. */
  toGoal(written: string) {
    try {
      const goal = readTarget(written, this.facts);
      if (goal.number !== null) return this.target(goal.number);
      this.follows = false;
      this.goal = goal;
      return this.changed();
    } catch (error) {
      return this.say((error as Error).message);
    }
  }

  /** Back to an earlier target. */
  retarget({ number, written, chosen }: TargetFacts) {
    const own = number !== null || !written || written === this.facts.net.target.written;
    this.goal = own ? null : readTarget(written, this.facts);
    this.targetClass = number;
    this.follows = !chosen;
    this.changed();
  }

  /** As the page opened: its picture and its target, without edits. */
  restart() {
    this.overtake();
    this.say("");
    const fresh = this.input === this.original && !this.edits.length && !this.goal &&
      this.targetClass === this.facts.net.number;
    if (fresh) return;
    this.edits = [];
    this.goal = null;
    this.targetClass = this.facts.net.number;
    this.follows = this.facts.net.follows;
    this.input = this.original;
    this.past = [];
    this.changed();
  }

  edit(what: AnyRequest) {
    if (what.set === "paint" || what.set === "erase") {
      return this.use(withStroke(this.input, what.bytes!, what.set === "erase"), true);
    }
    if (what.set === "drop") this.edits = this.edits.filter((each) => each.key !== what.key);
    else if (what.set === "edits") this.edits = what.keys.map((key) => this.known[key]);
    else if (what.set === "factor") this.scale(what.layer, what.channel, what.factor);
    return this.changed();
  }

  scale(layer: string, channel: number, factor: number) {
    const others = this.edits.filter((one) => one.layer !== layer || one.channels[0] !== channel);
    const how = factor === 0 ? "off" : `× ${Number(factor.toPrecision(3))}`;
    const own: Factor = {
      layer,
      channels: [channel],
      factor,
      key: this.known.length,
      words: `${layer || "(model)"}, channel ${channel}: ${how}`,
    };
    this.known.push(own);
    this.edits = factor === 1 ? others : [...others, own];
  }

  /** What the score loses without each channel of a layer that runs once. */
  async ablate(at: At, told: (part: Part | null) => void) {
    const [facts, answer] = [this.callOf(at.layer), this.answers.edited];
    const none = this.beyondClasses
      ? OF_CLASSES
      : this.callOf(at.layer, Infinity) !== facts || !facts.channels
      ? "not worked out in a page for this layer"
      : "";
    const part = none ? { order: null, none } : await this.running.ablate(answer, facts);
    told(answer === this.answers.edited ? part : null);
  }

  value() {
    return null; // nothing here is rounded
  }

  why<Asked extends ReasonQuestion>(question: Asked) {
    return answered(question, this.held, []);
  }

  /** Whether answers about values, or kernels, are in the page. */
  holds(what: "answers" | "weights"): boolean {
    return this.held.header[what].length > 0;
  }

  prefetch() {} // whatever is asked for is a run

  // Another input

  /**
   * A picture of any size that is still read: where one that was asked for later is shown already,
   * that stays.
   */
  async read(reading: Promise<Rgb>) {
    this.given += 1;
    const own = this.given;
    try {
      const picture = await reading;
      if (own < this.taken) return;
      this.use(this.inputOf(picture), true);
      this.taken = own;
    } catch (error) {
      if (own > this.taken) throw error;
    }
  }

  /** What is still read comes too late. */
  overtake() {
    this.given += 1;
    this.taken = this.given;
  }

  /** @param kept Whether the input before can be brought back. */
  use(input: Input, kept: boolean) {
    input.key ??= ++this.used;
    if (kept) this.past = [...this.past.slice(-30), this.input];
    this.input = input;
    this.changed();
  }

  /** The input before this one. */
  undo() {
    const before = this.past.pop();
    this.overtake();
    if (before) this.use(before, false);
  }

  /** An earlier input, or after that a later one. */
  restore(input: Input) {
    const place = this.past.lastIndexOf(input);
    const { past } = this;
    this.overtake();
    this.use(input, place < 0);
    if (place >= 0) this.past = past.slice(0, place);
  }

  /**
   * A frame of the camera: it is shown together with its maps, unless something else came.
   * @param on Whether the camera still is.
   */
  async film(picture: Rgb, on: () => boolean) {
    if (this.running.works) return; // a heatmap of many runs is of one frame
    const { answers } = this;
    const input = { ...this.inputOf(picture), key: FRAME };
    const next = this.fresh(input);
    next.edited.add(await this.runner.run(next.edited.feeds, this.wantedOf("edited")));
    if (this.edits.length) {
      next.original.add(await this.runner.run(next.original.feeds, this.wantedOf("original")));
    }
    if (this.answers !== answers || !on()) return;
    this.overtake();
    this.input = input;
    this.changed(next);
  }

  say(note: string) {
    if ((this.facts.note ?? "") === note) return;
    this.facts = { ...this.facts, note };
    this.tell();
  }

  inputOf(picture: Rgb): Input {
    const { transform, inputs } = this.facts.net;
    if (!transform) throw new Error("This network takes no picture.");
    const small = prepared(picture, transform.steps);
    const [, channels, height, width] = inputs.input;
    if (small.height !== height || small.width !== width) {
      throw new Error(
        `The picture became ${small.height}×${small.width}, and the network takes ${height}×${width}.`,
      );
    }
    const values = numbersOf(small, channels, transform.mean, transform.std);
    const shown = pictureOf(small.pixels, { height, width, size: [height, width], words: "" });
    return { values, shape: inputs.input, picture: shown };
  }

  /** One of the page's own inputs. */
  again(input: Input = this.original) {
    this.overtake();
    if (this.input !== input) this.use(input, true);
  }
}

const FRAME = 0;
const NONE = { values: null, shape: [], none: "this heatmap is not computed in a page" };
const OF_CLASSES = "for classes only: choose one as the target";
const NO_BOXES = "Boxes of another picture, or after an edit, need the notebook.";
const OTHER = "The ribbon shows the layers of the picture that this page was made with.";

/**
 * What is drawn of a map of the output, as `hookviz.view.answer.map_values` has it.
 * @param values All channels.
 */
function drawnOutput(
  { size: [height, width], picture }: OutputMap,
  values: Float32Array,
  channel: number | null,
): Found {
  const area = height * width;
  const count = values.length / area;
  const shape = [height, width];
  if (channel !== null) {
    return { values: { shape, values: values.slice(channel * area, (channel + 1) * area) } };
  }
  const at = (c: number, place: number) => values[c * area + place];
  if (picture) {
    const { low, high } = rangeOf(values, false);
    const share = (value: number) => (Number.isNaN(value) ? 0 : (value - low) / (high - low));
    const pixels = new Uint8ClampedArray(3 * area);
    for (let n = 0; n < pixels.length; n++) {
      pixels[n] = 255 * share(at(count === 1 ? 0 : n % 3, Math.floor(n / 3)));
    }
    return { pixels: { shape: [...shape, 3], values: pixels } };
  }
  const classes = new Uint32Array(area);
  for (let place = 0; place < area; place++) {
    for (let c = 1; c < count; c++) {
      const most = at(classes[place], place);
      if (at(c, place) > most || (Number.isNaN(at(c, place)) && !Number.isNaN(most))) {
        classes[place] = c; // as torch: NaN is the largest
      }
    }
  }
  return { classes: { shape, values: classes } };
}

const less = (a: Float32Array, b: Float32Array) => a.map((value, i) => value - b[i]);

/** A layer's mean over channels, small, as levels between its own ends. */
function levelsOf(tensor: Tensor, facts: CallFacts, depth?: number) {
  const maps = arranged(tensor, facts, depth);
  const [count, height, width] = flatShape(facts.shape);
  const sums = new Float64Array(height * width);
  for (let i = 0; i < maps.length; i++) sums[i % sums.length] += maps[i];
  const mean = Float32Array.from(sums, (sum) => sum / count);
  const factor = Math.ceil(Math.max(height, width) / MAP_SIDE);
  const small = averaged(mean, height, width, factor).values;
  return toLevels(small, rangeOf(small, false, "single"));
}

function sameFeeds(a: Record<string, Tensor>, b: Record<string, Tensor>) {
  return Object.entries(a).every(([name, { values }]) => {
    const other = b[name]?.values;
    return other === values ||
      (other?.length === values.length && values.length < 1e5 &&
        values.every((value, i) => value === other[i]));
  });
}

/** A layer's output as maps, one behind the other; of volumes the slice at a depth. */
function arranged({ values }: Tensor, { offset, strides, shape }: CallFacts, depth: number = 0) {
  const [count, height, width] = flatShape(shape);
  const volume = shape.length === 4;
  const start = offset + (volume ? Math.min(depth, shape[1] - 1) * strides[1] : 0);
  const [along, down, right] = [
    strides[0] ?? 0,
    shape.length > 2 ? (strides.at(-2) ?? 0) : 0,
    strides.at(-1) ?? 0,
  ];
  if (right === 1 && down === width && along === width * height) {
    return values.subarray(start, start + count * along);
  }
  const maps = new Float32Array(count * height * width);
  let place = 0;
  for (let c = 0; c < count; c++) {
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        maps[place] = values[start + c * along + y * down + x * right] ?? NaN;
        place += 1;
      }
    }
  }
  return maps;
}

/** @returns Channels, height and width of a slice. */
function flatShape(shape: number[]): [number, number, number] {
  return [
    shape[0] ?? 1,
    shape.length > 2 ? (shape.at(-2) ?? 1) : 1,
    shape.length > 1 ? (shape.at(-1) ?? 1) : 1,
  ];
}
