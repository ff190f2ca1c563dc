// The card beside a chosen position: its value, the channels that respond most there, and actions.

import { el, setText, visible } from "./dom.ts";
import { short } from "./numbers.ts";
import { positionIn } from "./state.ts";
import type { App } from "./app.ts";
import type { Layer } from "./layer.ts";
import type { Panel } from "./panel.ts";

const FIRST = 3; // channels that are named
const BESIDE = 14; // pixels between the position and the card

/** It is in the panel in which the position was chosen; Escape clears the position and hides the card. */
export class Card {
  title = el("b", {});
  value = el("span", {});
  best = el("div", { class: "hv-card-best" });
  why = el("button", {
    class: "hv-toggle hv-why-offer",
    type: "button",
    title: "why is this value what it is? (key w)",
  }, "why?");
  occlude = el("button", {
    class: "hv-toggle",
    type: "button",
    title: "paint over the input here and see how the prediction changes",
  }, "occlude here");
  root: HTMLElement;
  panel: Panel;
  dismissed: string | null = null; // the position at which it was closed
  placed = "";
  drawn = "";

  constructor(public app: App) {
    const close = el("button", {
      class: "hv-close",
      type: "button",
      "aria-label": "close the card",
    }, "✕");
    const sort = el("button", {
      class: "hv-toggle",
      type: "button",
      title: "sort the channels by how far their value here is above their mean (key b)",
    }, "sort by this");
    this.root = el(
      "div",
      { class: "hv-card-here", role: "group", "aria-label": "the chosen position", hidden: true },
      el("div", { class: "hv-card-head" }, this.title, close),
      this.value,
      this.best,
      el("div", { class: "hv-card-acts" }, this.why, sort, this.occlude),
    );
    this.panel = app.parts.map;
    for (const panel of [app.parts.input, app.parts.map, app.parts.slope]) {
      panel.onChosen = () => {
        this.panel = panel;
        this.dismissed = null;
      };
    }
    close.addEventListener("click", () => {
      this.dismissed = String(app.at.place);
      app.schedule();
    });
    this.why.addEventListener("click", () => app.parts.drawers.toggle("why"));
    sort.addEventListener("click", () => app.best());
    this.occlude.addEventListener("click", () => {
      const { place } = app.at;
      if (place) app.occlude?.(place[1], place[0]);
    });
    this.best.addEventListener("click", (event) => {
      const chosen = (event.target as HTMLElement).closest("button");
      if (chosen) app.state.set({ channel: Number(chosen.dataset.channel) });
    });
  }

  show(data: Layer) {
    const { app } = this;
    const { place } = app.at;
    const shown = place !== null && data.width > 0 && String(place) !== this.dismissed;
    visible(this.root, shown);
    if (!place || !shown) return;
    const why = Boolean(app.source.why) && !data.header.query;
    visible(this.why, why && !app.why.open);
    if (why && app.source.switches) app.source.why?.({ ask: "prepare" });
    visible(this.occlude, app.occlude !== null && !data.header.parts && data.header.place !== null);
    const [row, column] = positionIn(place, data.header.size);
    const where = data.header.size[0] > 1 ? `row ${row}, column ${column}` : `position ${column}`;
    setText(this.title, where);
    setText(this.value, `${data.word} ${app.at.channel}: ${app.valueAt(data, row, column)}`);
    this.channels(data);
    this.move(place);
  }

  /** The channels that respond most here, measured against their own means. */
  channels(data: Layer) {
    const flat = data.count < 2 || data.header.size.every((side: number) => side < 2);
    const ranking = flat ? null : this.app.rankings.of(data, { ...this.app.at, order: "contrast" });
    const scores = ranking?.scores ?? null;
    const key = `${flat} ${ranking?.words} ${
      Boolean(scores)
    } ${data.header.layer} ${ranking?.key} ${this.app.at.channel} ${this.app.facts.run}`;
    if (key === this.drawn) return;
    this.drawn = key;
    visible(this.best, !flat);
    if (!ranking || !scores) return this.best.replaceChildren(ranking?.words ?? "");
    const first = Array.from(ranking.order).slice(0, FIRST).map((channel) =>
      el(
        "button",
        {
          type: "button",
          class: "hv-toggle",
          "data-channel": channel,
          "aria-pressed": String(channel === this.app.at.channel),
          title: `show ${data.word} ${channel}: its value here is ${
            short(Number(scores[channel]))
          } standard deviations above its mean`,
        },
        el("b", {}, String(channel)),
        ` z ${Number(scores[channel]).toFixed(1)}`,
      )
    );
    return this.best.replaceChildren(
      el("span", { class: "hv-dim" }, `${data.word}s that respond most here`),
      ...first,
    );
  }

  /** To the right of the position, or to its left where the view ends. */
  move([v, u]: [number, number]) {
    const { app, panel, root } = this;
    const { k, x, y } = app.at.zoom;
    const key = `${v} ${u} ${k} ${x} ${y} ${panel.root.className} ${app.parts.ribbon.wide}`;
    if (key === this.placed && root.parentElement === panel.root) return;
    this.placed = key;
    if (root.parentElement !== panel.root) panel.root.append(root);
    const frame = panel.frame.getBoundingClientRect();
    const own = panel.root.getBoundingClientRect();
    const whole = app.root.getBoundingClientRect();
    const right = frame.left + Math.min(Math.max(k * (u - x), 0), 1) * frame.width;
    const fits = right + BESIDE + root.offsetWidth < whole.right;
    const left = fits ? right + BESIDE : Math.max(right - BESIDE - root.offsetWidth, whole.left);
    const down = frame.top - own.top + Math.min(Math.max(k * (v - y), 0), 1) * frame.height;
    root.style.left = `${left - own.left}px`;
    root.style.top = `${
      Math.max(0, Math.min(down - 20, frame.bottom - own.top - root.offsetHeight))
    }px`;
  }
}
