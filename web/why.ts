// Why a value is what it is: its bias and terms, and the way back to the pixels.

import { el, setAttribute, setText, visible } from "./dom.ts";
import { paint, toLevels } from "./levels.ts";
import { short } from "./numbers.ts";
import type { App } from "./app.ts";
import type { Numbers, Numeric } from "./layer.ts";
import type { WhyOrigin, WhyTerm, WithoutQuestion } from "./messages.d.ts";
import type { Reason, ReasonQuestion, Reasons } from "./source.ts";
import type { Values } from "./state.ts";

type Answer = Reasons["why"];

/** One number of the network: a position, or the place on the pictures, or a value of the output. */
interface Spot extends Pick<Answer, "layer" | "call" | "channel" | "position"> {
  place?: Values["place"];
  output?: number;
  written?: string;
  sample?: number;
  said?: Answer;
}

/** A drawer; it follows the chosen position while it is open. */
export class Why {
  /** From the first value that was asked for, back towards the input. */
  trail: Spot[] = [];
  index = 0;
  followed = "";
  drawn = "";
  /** Input channels that are marked to be switched off. */
  marked: Set<number> = new Set();
  /** What was asked to be switched off. */
  off: Omit<WithoutQuestion, "key"> | null = null;
  again = 0; // so that what was stopped is asked once more
  stopped = false;
  offStopped = false;
  late = 0;
  end = el("span", { class: "hv-why-working", hidden: true }, WORKING);
  way = el("span", { class: "hv-why-trail", "aria-label": "from the value back to the input" });
  logit = el("button", { class: "hv-toggle", type: "button" });
  sum = el("div", { class: "hv-why-sum" });
  onward = el("div", { class: "hv-dim" });
  terms = el("div", { class: "hv-why-terms" });
  cell = el("div", { class: "hv-why-cell hv-dim", "aria-live": "polite" });
  switch = el("button", { class: "hv-toggle", type: "button" }, "switch these off");
  checked = el("span", {});
  root: HTMLDivElement;

  constructor(public app: App) {
    this.logit.addEventListener("click", () => {
      const nowhere = { layer: "", call: -1, channel: 0, position: [] };
      const output = this.target();
      const { written } = this;
      if (output !== null) this.begin({ ...nowhere, output });
      else if (written) this.begin({ ...nowhere, written });
    });
    this.switch.addEventListener("click", () => this.test());
    this.root = el(
      "div",
      { class: "hv-why" },
      el("div", { class: "hv-why-head" }, this.way, this.logit),
      this.sum,
      this.end,
      this.onward,
      this.terms,
      this.cell,
      el("div", { class: "hv-line" }, this.switch, this.checked),
    );
  }

  get open() {
    return this.app.parts.drawers.open === "why";
  }

  toggled(open: boolean) {
    if (open && this.stopped) this.again += 1;
    this.followed = "";
    this.app.schedule();
  }

  /** The number of the class whose gradient is shown, if it is one. */
  target() {
    const { at, facts } = this.app;
    const number = at.targetClass ?? facts.target.number;
    return typeof number === "number" ? number : null;
  }

  /** The target as it is typed, where it is a number anywhere in the output. */
  get written() {
    const { switches } = this.app.source; // the kernel answers
    const { written } = this.app.facts.target;
    return switches && this.target() === null && written?.startsWith("output") ? written : null;
  }

  begin(spot: Spot) {
    this.trail = [spot];
    this.go(0);
  }

  go(index: number) {
    this.index = index;
    this.marked.clear();
    this.off = null;
    this.app.schedule();
  }

  /** Walk to where a term came from; the explorer goes along where it has the layer. */
  follow(spot: Spot) {
    this.trail = [...this.trail.slice(0, this.index + 1), spot];
    this.go(this.index + 1);
    this.lead(spot);
  }

  lead({ layer, channel, position }: Spot) {
    const known = this.app.facts.layers.find((each) => each.name === layer);
    if (!known) return;
    const size = String(known.size).split("×").map(Number);
    const [high, wide] = size.length > 1 ? size.slice(-2) : [1, size[0]];
    const [row, column] = position.length > 1 ? position.slice(-2) : [0, position[0] ?? 0];
    if (!high || !wide || row === undefined || column === undefined) return;
    const place: [number, number] = [(row + 0.5) / high, (column + 0.5) / wide];
    this.followed = key({ ...this.app.at, layer, channel, place });
    this.app.state.set({ layer, channel, place });
  }

  /** What is asked of the kernel. */
  question(): (ReasonQuestion & { ask: "why" }) | null {
    const { at } = this.app;
    const spot = this.trail[this.index];
    if (!spot) return null;
    if (spot.output !== undefined) return { ask: "why", output: spot.output, sample: at.sample };
    if (spot.written) return { ask: "why", written: spot.written, sample: at.sample };
    const { layer, call, channel, sample = at.sample } = spot;
    const where = spot.position.length || !spot.place
      ? { position: spot.position }
      : { place: spot.place };
    const again = this.again ? { again: this.again } : {};
    return { ask: "why", layer, call, channel, sample, depth: at.depth, ...where, ...again };
  }

  /** After half a second without an answer: what is done, and how it is stopped. */
  wait() {
    setText(this.end, this.app.source.switches ? WORKING : "working: the network runs");
    if (!this.late) this.late = setTimeout(() => visible(this.end, true), HALF_A_SECOND);
  }

  /** There is an answer. */
  came() {
    clearTimeout(this.late);
    this.late = 0;
    visible(this.end, false);
  }

  show() {
    const { app } = this;
    const { at, source } = app;
    if (!this.open) return this.came();
    const target = this.target();
    visible(
      this.logit,
      this.written !== null ||
        (target !== null && (source.switches || Boolean(app.facts.why?.output))),
    );
    setText(this.logit, `start at ${app.facts.target.name}`);
    const now = key(at);
    if (at.place && now !== this.followed) {
      this.followed = now;
      const { layer, call, channel, place } = at;
      const spot = { layer, call, channel, position: [], place };
      this.trail = [spot];
      this.index = 0;
      this.marked.clear();
      this.off = null;
    }
    const question = this.question();
    if (!source.why) return this.say("This needs the notebook: the page holds no answers.");
    if (!question) {
      return this.say("Click a value in the feature map, or begin from the prediction.");
    }
    const found = source.why(question);
    this.stopped = Boolean(found?.stopped);
    if (found) this.came();
    else this.wait();
    if (!found) return this.drawn ? undefined : this.say(COMING);
    if (found.none !== undefined) return this.say(found.none);
    const off = this.off && source.why?.(this.off);
    this.offStopped = Boolean(off?.stopped);
    this.tellOff(off);
    const drawn = `${
      JSON.stringify(question)
    } ${app.facts.run} ${app.colours.dark} ${this.trail.length} ${[...this.marked]}`;
    if (drawn === this.drawn) return undefined;
    this.drawn = drawn;
    this.trail[this.index].said = found;
    this.fill(found);
    return undefined;
  }

  say(words: string) {
    this.drawn = "";
    this.way.replaceChildren(...this.trail.flatMap((spot, place) => this.chip(spot, place))); // the way back
    this.terms.replaceChildren();
    for (const each of [this.onward, this.cell, this.checked]) setText(each, "");
    visible(this.switch, false);
    setText(this.sum, words);
  }

  fill(found: Answer) {
    const {
      layer,
      channel,
      position,
      sample,
      value,
      bias,
      rest,
      others,
      constant,
      constants,
      terms,
    } = found;
    this.way.replaceChildren(...this.trail.flatMap((spot, place) => this.chip(spot, place)));
    const parts = terms.map((each) => added(each.contribution, `channel ${each.channel}`));
    const still = constants ? [added(constant, `${constants} constant channels`)] : [];
    const more = [...still, ...(others ? [added(rest, `${others} others`)] : [])];
    const whole = [...parts.slice(0, 3), ...(parts.length > 3 ? ["…"] : []), ...more];
    setAttribute(this.sum, "title", value); // every digit
    setText(this.sum, `${short(number(value))} = bias ${short(number(bias))} ${whole.join(" ")}`);
    const after = found.after.map(([name, now]) => `${name} ${short(number(now))}`);
    const where = position.length ? ` at (${position.join(", ")})` : "";
    if (found.mixed) after.push(`${found.mixed} (of several values)`);
    const then = after.length ? `; then ${after.join(" → ")}` : "";
    const edited = found.edited
      ? `; its edits (${found.edits.join(", ")}) make it ${short(number(found.edited))}`
      : "";
    const row = sample === this.app.at.sample || found.sample === undefined
      ? ""
      : `, row ${sample} of its batch`;
    const note = found.note ? `. ${found.note}` : "";
    setText(this.onward, `${layer}, channel ${channel}${where}${row}${edited}${then}${note}`);
    const sizes = [bias, rest, constant, ...terms.map((each) => each.contribution)].map((
      text,
    ) => Math.abs(number(text)));
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
    const head = el(
      "div",
      { class: "hv-why-term hv-why-columns" },
      ...names.map((name) => el("span", {}, name)),
    );
    this.terms.replaceChildren(
      head,
      plain("bias", bias, most),
      ...(constants ? [plain(`${constants} constant channels`, constant, most, CONSTANT)] : []),
      ...terms.map((each, place) => this.term(found, each, place, most)),
      ...(others ? [plain(`${others} others`, rest, most)] : []),
    );
    setText(
      this.cell,
      found.size.some((each) => each > 1) ? "Point at a kernel or patch for each product." : "",
    );
    visible(this.switch, this.marked.size > 0 && Boolean(this.app.source.switches));
  }

  chip(spot: Spot, place: number) {
    const { layer, channel, position } = spot.said ?? spot;
    const where = position.length ? ` (${position.join(", ")})` : "";
    const words = (spot.output !== undefined || spot.written) && !spot.said
      ? "prediction"
      : `${layer} · ${channel}${where}`;
    const made = el("button", {
      type: "button",
      title: words,
      "aria-current": place === this.index ? "true" : "false",
    }, words);
    made.addEventListener("click", () => {
      this.go(place);
      if (spot.said) this.lead(spot.said);
    });
    return place ? [el("span", { class: "hv-dim" }, "←"), made] : [made];
  }

  term(found: Answer, term: WhyTerm, place: number, most: number) {
    const mark = el("input", {
      type: "checkbox",
      "aria-label": `switch channel ${term.channel} off`,
    });
    mark.checked = this.marked.has(term.channel);
    mark.addEventListener("change", () => {
      if (mark.checked) this.marked.add(term.channel);
      else this.marked.delete(term.channel);
      this.off = null;
      visible(this.switch, this.marked.size > 0);
      setText(this.checked, "");
    });
    const { kernel, patch, maps } = found.arrays;
    const [, height = 1, width = 1] = maps?.shape ?? [];
    const whole = maps?.values.subarray(place * height * width, (place + 1) * height * width);
    const taps = kernel.shape[1] ?? 1;
    const own = (array: Numbers) => array.values.subarray(place * taps, (place + 1) * taps);
    const [high, wide] = found.size.length > 1 ? found.size.slice(-2) : [1, found.size[0] ?? 1];
    const tall = taps / wide || high;
    const cells = [own(kernel), own(patch)];
    const numbers = () =>
      cells.map((values) =>
        el("span", { class: "hv-why-number", title: String(values[0]) }, short(values[0]))
      );
    const pictures = taps === 1 ? numbers() : cells.map((values, which) => {
      const picture = this.picture(
        values,
        tall,
        wide,
        which === 0 ? `kernel of channel ${term.channel}` : `patch of channel ${term.channel}`,
        which === 0,
        which ? whole : undefined,
      );
      picture.addEventListener("pointermove", (event) => {
        const box = picture.getBoundingClientRect();
        const row = Math.min(Math.floor(((event.clientY - box.top) / box.height) * tall), tall - 1);
        const column = Math.min(
          Math.floor(((event.clientX - box.left) / box.width) * wide),
          wide - 1,
        );
        const at = row * wide + column;
        const [one, two] = [cells[0][at], cells[1][at]];
        setText(
          this.cell,
          `channel ${term.channel}, tap (${row}, ${column}): kernel ${short(one)} × patch ${
            short(two)
          } = ${short(one * two)}`,
        );
      });
      return picture;
    });
    let map = el("span", {});
    if (maps) {
      const shown = this.picture(
        whole,
        height,
        width,
        `map of input channel ${term.channel}`,
        false,
      );
      const [from, to] = term.window;
      if (from && to) {
        const box = el("i");
        const share = (part: number, all: number) => `${(100 * part) / all}%`;
        const [top = 0, left = 0] = from;
        const [bottom = 0, right = 0] = to;
        box.style.top = share(top, height);
        box.style.left = share(left, width);
        box.style.height = share(bottom + 1 - top, height);
        box.style.width = share(right + 1 - left, width);
        shown.append(box);
      }
      map = shown;
    }
    const from = el(
      "span",
      { class: "hv-why-from" },
      ...term.origins.map((origin) => this.origin(origin)),
    );
    const more = besides(term);
    if (more) {
      from.append(el("span", { class: "hv-dim", title: REMAINDERS[term.kind ?? ""] ?? "" }, more));
    }
    return el(
      "div",
      { class: "hv-why-term" },
      this.app.source.switches ? mark : el("span", {}),
      el("span", {}, `channel ${term.channel}`),
      bar(number(term.contribution), most),
      el(
        "span",
        { class: "hv-why-number", title: term.contribution },
        short(number(term.contribution)),
      ),
      map,
      ...pictures,
      from,
    );
  }

  origin(origin: WhyOrigin) {
    const { layer, channel, position, path, part, cut_off: cutOff } = origin;
    const where = position.length ? ` (${position.join(", ")})` : "";
    const words = `${cutOff ? "cut off" : short(number(part))} ← ${layer} · ${channel}${where}`;
    if (layer === "input") return el("span", {}, words);
    const by = path.length ? `by ${path.join(", ")}` : "directly";
    const made = el("button", { type: "button", title: `${words}, ${by}` }, words);
    made.addEventListener(
      "click",
      () =>
        this.follow({
          layer,
          call: origin.call,
          channel,
          position,
          ...(origin.sample === undefined ? {} : { sample: origin.sample }),
        }),
    );
    return made;
  }

  /**
   * A small picture of values in its own range; the kernel's middle is zero.
   * @param all The values whose range it is, where these are a part.
   */
  picture(
    values: Numeric,
    height: number,
    width: number,
    label: string,
    diverging: boolean,
    all: Numeric = values,
  ) {
    const canvas = el("canvas", { width, height });
    const finite = Array.from(all).filter(Number.isFinite).map(Number);
    const least = finite.reduce((one, other) => Math.min(one, other), Infinity);
    const most = finite.reduce((one, other) => Math.max(one, other), -Infinity);
    const signed = diverging || least < 0;
    const size = Math.max(Math.abs(least), Math.abs(most)) || 1;
    const range = signed
      ? { low: -size, high: size }
      : { low: finite.length ? least : 0, high: most > least ? most : least + 1 };
    const palette = this.app.colours.palette(this.app.colours.automatic(signed));
    paint(canvas, toLevels(values, { ...range, precision: "double" }), width, height, palette);
    return el("span", { class: "hv-why-picture", role: "img", "aria-label": label }, canvas);
  }

  /** Ask what the terms' channels make, when they are set to zero. */
  test() {
    const spot = this.trail[this.index]?.said;
    if (!spot || !this.marked.size) return;
    const { layer, call, channel, position, sample } = spot;
    const target = this.target();
    if (this.offStopped) this.again += 1;
    const again = this.again ? { again: this.again } : {};
    this.off = {
      ask: "without",
      ...again,
      layer,
      call,
      channel,
      position,
      sample,
      channels: [...this.marked].sort((a, b) => a - b),
      target,
    };
    this.app.schedule();
  }

  tellOff(off: Reason<"without"> | null) {
    if (!this.off) return setText(this.checked, "");
    if (!off) return setText(this.checked, "on its way …");
    if (typeof off.none === "string") return setText(this.checked, off.none);
    const score = typeof off.score === "string"
      ? `; ${this.app.facts.target.name} logit ${plus(off.score)}`
      : "";
    return setText(
      this.checked,
      `this value: predicted ${plus(off.predicted)}, measured ${plus(off.true)}${score}`,
    );
  }
}

function key(
  { layer, call, channel, sample, place }: Pick<
    Values,
    "layer" | "call" | "channel" | "sample" | "place"
  >,
) {
  return JSON.stringify([layer, call, channel, sample, place]);
}

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

/** To the right for a positive value, to the left for a negative one. */
export function bar(value: number, most: number) {
  const made = el("span", { class: "hv-why-bar", "aria-hidden": "true" });
  const inner = el("i", { class: value < 0 ? "hv-less" : "hv-more" });
  const wide = Number.isFinite(value) ? (50 * Math.abs(value)) / most : 50;
  inner.style.width = `${wide}%`;
  inner.style.left = `${value < 0 ? 50 - wide : 50}%`;
  made.append(inner);
  return made;
}

/** What is left of an input beside the parts. */
const REMAINDERS: Record<string, string> = {
  constant: "biases and shifts: what no layer made",
  linearisation:
    "the path is not piecewise linear: the parts are gradient × value, and this is what is left",
  unexplained: "autograd does not follow all of the path",
};

/** What an input was made of beside the parts that are shown one by one. */
function besides({ origins, traced, others, rest, remainder, kind, bent_by: by }: WhyTerm) {
  if (!traced) return origins.length ? "" : "traced back in the notebook";
  if (typeof remainder !== "string") return "padding, or not traced back";
  const parts = others ? [`${short(number(rest ?? "0"))} from ${others} others`] : [];
  const left = number(remainder);
  const size = origins.reduce((sum, { part }) => sum + Math.abs(number(part)), Math.abs(left));
  if (Math.abs(left) > 1e-5 * size) {
    parts.push(
      `${short(left)} ${kind === "linearisation" ? "remainder of a linearisation" : kind}${
        by?.length ? ` (${by.join(", ")})` : ""
      }`,
    );
  }
  return parts.join("; ");
}

const HALF_A_SECOND = 500; // milliseconds
const WORKING =
  "working: the network runs once more, to keep what its layers are given; interrupt the kernel to stop";
const COMING = "on its way …";
const CONSTANT =
  "input channels that do not depend on the picture: trained away, or all their inputs are zero here";

/** A line without pictures. */
function plain(name: string, text: string, most: number, title: string = "") {
  const value = number(text);
  return el(
    "div",
    { class: "hv-why-term" },
    el("span", {}),
    el("span", { title }, name),
    bar(value, most),
    el("span", { class: "hv-why-number", title: text }, short(value)),
  );
}
