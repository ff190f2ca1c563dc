// The entry of a survey's page: channels with their patches, to be searched and sorted.

import { el, menu, readJson, setText, visible } from "./dom.ts";
import { followTheme } from "./theme.ts";

const AT_ONCE = 48; // channels that are added at once

const KEYS: Record<string, "largest" | "purity" | "zeros"> = {
  "largest value": "largest",
  purity: "purity",
  zeros: "zeros",
};

interface Channel {
  channel: number;
  words: string[];
  captions: string[];
  picture: string;
  largest?: number;
  purity?: number;
  zeros?: number;
  /** Set here: the name of its layer, and what a search looks at. */
  layer: string;
  text: string;
}

interface Facts {
  title: string;
  words: string;
  notes: string[];
  layers: Array<{ name: string; words: string }>;
  orders: string[];
  patches: number;
  start: { layer: number; channel: number; order: string } | null;
}

/** All that is on the page. */
class SurveyPage {
  known: Map<number, Channel[]> = new Map();
  found: Channel[] = [];
  shown = 0;
  layer: HTMLSelectElement;
  order: HTMLSelectElement;
  typed = el("input", {
    type: "search",
    "aria-label": "find channels",
    placeholder: "find: a class, a number, words …",
    spellcheck: "false",
    class: "hv-typed",
  });
  count = el("span", { class: "hv-dim", role: "status" });
  cards = el("div", { class: "hv-cards" });
  more = el("button", { type: "button" });

  constructor(root: HTMLElement, public facts: Facts) {
    const names = facts.layers.map((each, place): [string, string] => [
      String(place),
      `${each.name} · ${each.words}`,
    ]);
    const again = () => this.find();
    this.layer = menu("layer", [...names, ["all", "all layers"]], again);
    const start = facts.start;
    this.layer.value = String(start ? start.layer : facts.layers.length - 1);
    this.order = menu(
      "order of the channels",
      facts.orders.map((o) => [o, `by ${o}`]),
      again,
    );
    this.typed.addEventListener("input", again);
    this.cards.style.setProperty("--patches", String(Math.max(facts.patches, 3)));
    this.more.addEventListener("click", () => this.add());
    // Where a page is scrolled to its end, there is more.
    new IntersectionObserver((seen) => {
      if (seen.some((each) => each.isIntersecting)) this.add();
    }).observe(this.more);
    root.replaceChildren(
      el(
        "div",
        { class: "hv-line" },
        el("h2", { class: "hv-name" }, facts.title),
        el("span", { class: "hv-dim" }, facts.words),
      ),
      ...facts.notes.map((note) => el("p", { class: "hv-dim" }, note)),
      el("div", { class: "hv-line hv-tools" }, this.layer, this.order, this.typed, this.count),
      this.cards,
      this.more,
    );
    if (start) this.order.value = start.order;
    this.find();
    if (start) this.lead(start.channel);
  }

  /** The channels of a layer, read when they are asked for. */
  channels(place: number) {
    if (!this.known.has(place)) {
      const found: Channel[] = readJson(`layer-${place}`) ?? [];
      for (const each of found) {
        each.layer = this.facts.layers[place].name;
        each.text = `${each.layer} ${each.words.join(" ")}`.toLowerCase();
      }
      this.known.set(place, found);
    }
    return this.known.get(place) ?? [];
  }

  /** Those that hold every typed word; a number is a channel's. */
  find() {
    const all = this.layer.value === "all";
    const places = all ? this.facts.layers.keys() : [Number(this.layer.value)];
    const words = this.typed.value.toLowerCase().split(/\s+/).filter(Boolean);
    const every = [...places].flatMap((place) => this.channels(place));
    this.found = every.filter((each) =>
      words.every((word) =>
        /^\d+$/.test(word) ? each.channel === Number(word) : each.text.includes(word)
      )
    );
    const key = KEYS[this.order.value];
    if (key) this.found.sort((a, b) => (b[key] ?? -Infinity) - (a[key] ?? -Infinity));
    const of = this.found.length === every.length ? "" : ` of ${every.length}`;
    setText(this.count, `${this.found.length}${of} channels`);
    this.shown = 0;
    this.cards.replaceChildren();
    this.add();
  }

  /** Show some more of what was found. */
  add() {
    const next = this.found.slice(this.shown, this.shown + AT_ONCE);
    this.shown += next.length;
    this.cards.append(...next.map((each) => this.card(each)));
    const rest = this.found.length - this.shown;
    visible(this.more, rest > 0);
    setText(this.more, `${rest} more`);
  }

  /** @param channel The first to be shown; those before it come last. */
  lead(channel: number) {
    const at = this.found.findIndex((each) => each.channel === channel);
    if (at <= 0) return;
    this.found = [...this.found.slice(at), ...this.found.slice(0, at)];
    this.shown = 0;
    this.cards.replaceChildren();
    this.add();
  }

  card(each: Channel) {
    const name = this.layer.value === "all"
      ? `${each.layer}, channel ${each.channel}`
      : `channel ${each.channel}`;
    const alt = `the top pictures of ${each.layer}, channel ${each.channel}: ${
      each.captions.join(", ")
    }`;
    return el(
      "section",
      { class: "hv-card", "aria-label": name },
      el(
        "div",
        { class: "hv-said" },
        el("b", {}, name),
        ...each.words.map((word) => el("span", { class: "hv-dim" }, word)),
      ),
      el("img", { alt, src: each.picture, decoding: "async" }),
      el(
        "div",
        { class: "hv-captions" },
        ...each.captions.map((caption) => el("span", { title: caption }, caption)),
      ),
    );
  }
}

followTheme();
const place = document.getElementById("hookviz");
if (place) new SurveyPage(place, readJson("facts"));
