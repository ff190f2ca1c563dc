// The kernels of the shown layer: in colour, as slices by input channel, or the row of a class.

import { el, setAttribute, setText, visible } from "./dom.ts";
import { put } from "./levels.ts";
import { short } from "./numbers.ts";
import { bar } from "./why.ts";
import type { App } from "./app.ts";
import type { Numeric } from "./layer.ts";
import type { Reason, Reasons } from "./source.ts";

type Kernels = Omit<Reasons["weights"], "kind"> & { kind: "colour" | "slices" | "row" };

/** A drawer; it follows the shown layer, channel and position while it is open. */
export class Weights {
  drawn = "";
  again = 0; // so that what was stopped is asked once more
  stopped = false;
  words = el("div", { class: "hv-why-sum" });
  facts = el("div", { class: "hv-dim" });
  tiles = el("div", { class: "hv-kernels" });
  bars = el("div", { class: "hv-histogram", role: "img" });
  ask = el("button", {
    type: "button",
    class: "hv-toggle",
    title: "pictures that excite the channel most, made by gradient ascent",
  }, "what excites it?");
  about = el("div", { class: "hv-dim", "aria-live": "polite" });
  pictures = el("div", { class: "hv-kernels" });
  spot = ""; // the channel and layer for which pictures were requested
  tries = 0;
  shown: Reason<"feature"> | null = null;
  root: HTMLDivElement;

  constructor(
    public app: App,
    public picture: (
      values: Numeric,
      height: number,
      width: number,
      label: string,
      diverging: boolean,
      all?: Numeric,
    ) => HTMLElement,
  ) {
    this.ask.addEventListener("click", () => {
      this.spot = this.channel();
      this.tries += 1;
      app.schedule();
    });
    this.root = el(
      "div",
      { class: "hv-weights-panel" },
      this.words,
      this.facts,
      el("div", { class: "hv-weights" }, this.tiles, this.bars),
      this.ask,
      this.about,
      this.pictures,
    );
  }

  channel() {
    const { layer, channel } = this.app.at;
    return `${channel} ${layer}`;
  }

  /** Shows the pictures that excite the channel, once they were requested. */
  excite() {
    const { at, source } = this.app;
    visible(this.ask, source.live);
    const wanted = this.spot === this.channel();
    const question = {
      ask: "feature" as const,
      layer: at.layer,
      channel: at.channel,
      again: this.tries,
    };
    const found = (wanted && source.why?.(question)) || null;
    if (found && found === this.shown) return;
    this.shown = found;
    setText(
      this.about,
      found
        ? (found.none ?? found.words)
        : wanted
        ? "making pictures; interrupt the kernel to stop"
        : "",
    );
    const { urls, captions } = found && found.none === undefined
      ? found
      : { urls: [], captions: [] };
    const made = urls.map((src, n) => {
      const caption = captions[n] ?? "";
      return el(
        "span",
        { class: "hv-kernel" },
        el("img", { src, alt: caption, width: 128 }),
        el("span", { class: "hv-dim" }, caption),
      );
    });
    this.pictures.replaceChildren(...made);
  }

  toggled(open: boolean) {
    this.drawn = "";
    if (open && this.stopped) this.again += 1;
    this.app.schedule();
  }

  show() {
    const { app } = this;
    const { at, source } = app;
    if (app.parts.drawers.open !== "weights" || !source.why) return;
    this.excite();
    const { layer, call, channel, sample, depth, place } = at;
    const question = {
      ask: "weights" as const,
      layer,
      call,
      channel,
      sample,
      depth,
      place,
      ...(this.again ? { again: this.again } : {}),
    };
    const found = source.why(question);
    this.stopped = Boolean(found?.stopped);
    const key = `${JSON.stringify(question)} ${app.facts.run} ${app.colours.dark}`;
    if (!found || key === this.drawn) return;
    this.drawn = key;
    if (found.none !== undefined) return this.say(found.none);
    this.fill(found as Kernels);
  }

  say(words: string) {
    setText(this.words, words);
    setText(this.facts, "");
    this.tiles.replaceChildren();
    this.bars.replaceChildren();
  }

  fill(found: Kernels) {
    const { kind, channels, total, by, facts } = found;
    setText(this.words, found.words);
    const count = channels.length < total ? `${channels.length} of ${total}` : `all ${total}`;
    const what = {
      colour: "kernels",
      slices: "slices by input channel",
      row: "weights by input channel",
    }[kind];
    const one = {
      colour: "one kernel",
      slices: "one slice by input channel",
      row: "one weight by input channel",
    }[kind];
    const order = total === 1 ? one : `${count} ${what}, the largest ${by} first`;
    setText(
      this.facts,
      [order, ...facts.map(([name, value]) => `${name} ${short(Number(value))}`)].join(" · "),
    );
    const make = kind === "row"
      ? this.row(found)
      : channels.map((_, place) => this.tile(found, place));
    this.tiles.classList.toggle("hv-kernel-row", kind === "row");
    this.tiles.replaceChildren(...make);
    this.histogram(found);
  }

  tile({ kind, channel, channels, numbers, size, arrays, by }: Kernels, place: number) {
    const [height = 1, width = 1] = size;
    const own = channels[place];
    const planes = kind === "colour" ? 3 : 1;
    const area = planes * height * width;
    const values = arrays.tiles.values.subarray(place * area, (place + 1) * area);
    const said = `${
      kind === "colour" ? "kernel of channel" : "slice of input channel"
    } ${own}, ${by} ${short(Number(numbers[place]))}`;
    const shown = kind === "colour"
      ? coloured(values, height, width, arrays.tiles.values, said)
      : this.picture(values, height, width, said, true, arrays.tiles.values);
    const name = el("span", { class: "hv-dim" }, String(own));
    if (kind !== "colour") return el("span", { class: "hv-kernel", title: said }, shown, name);
    const made = el(
      "button",
      {
        type: "button",
        class: "hv-kernel",
        title: said,
        "aria-pressed": own === channel ? "true" : "false",
      },
      shown,
      name,
    );
    made.addEventListener("click", () => this.app.state.set({ channel: own }));
    return made;
  }

  row({ channels, numbers }: Kernels) {
    const most = Math.max(
      ...numbers.map((each) => Math.abs(Number(each))).filter(Number.isFinite),
      1e-30,
    );
    return channels.map((own, place) => {
      const value = Number(numbers[place]);
      return el(
        "div",
        { class: "hv-kernel-bar" },
        el("span", {}, String(own)),
        bar(value, most),
        el("span", { class: "hv-why-number", title: String(value) }, short(value)),
      );
    });
  }

  histogram({ bins, channel }: Kernels) {
    const { low, high, all, own } = bins;
    const [mostOfAll, mostOfOwn] = [Math.max(...all, 1), Math.max(...own, 1)];
    const column = (count: number, most: number, name: string) => {
      const made = el("i", { class: name });
      made.style.height = `${(100 * count) / most}%`;
      return made;
    };
    const bars = all.map((count, n) =>
      el(
        "span",
        {},
        column(count, mostOfAll, "hv-all"),
        column(own[n] ?? 0, mostOfOwn, "hv-own"),
      )
    );
    const label = `distribution of the weights, ${short(Number(low))} to ${
      short(Number(high))
    }; the line is channel ${channel}`;
    setAttribute(this.bars, "aria-label", label);
    setAttribute(this.bars, "title", label);
    const ends = el(
      "div",
      { class: "hv-dim hv-histogram-ends" },
      el("span", {}, short(Number(low))),
      el("span", {}, "all weights, and this channel's"),
      el("span", {}, short(Number(high))),
    );
    this.bars.replaceChildren(el("div", { class: "hv-histogram-bars" }, ...bars), ends);
  }
}

/** A kernel of three input channels as a picture in its own colours; grey is zero. */
function coloured(values: Numeric, height: number, width: number, all: Numeric, label: string) {
  let largest = 0;
  for (const each of all) if (Number.isFinite(each)) largest = Math.max(largest, Math.abs(each));
  const most = largest || 1;
  const pixels = new Uint8ClampedArray(4 * height * width).fill(255);
  for (let i = 0; i < height * width; i++) {
    for (let c = 0; c < 3; c++) {
      pixels[4 * i + c] = Math.round(127.5 * (1 + values[c * height * width + i] / most));
    }
  }
  const canvas = el("canvas", { width, height });
  put(canvas, pixels, width, height);
  return el("span", { class: "hv-why-picture", role: "img", "aria-label": label }, canvas);
}
