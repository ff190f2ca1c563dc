// Controls for edits: the shown channel's factor, the list of edits, and the run that is shown.

import { choose, el, menu, setAttribute, setText, visible } from "./dom.ts";
import { middle } from "./numbers.ts";
import type { AnyRequest, EditFacts } from "./messages.d.ts";

export interface Place {
  layer: string;
  channel: number;
}

const CHIP = 48; // letters of an edit's chip
const REST = 60; // milliseconds without movement before the slider's factor is sent

/** A line of controls; `onEdit` gets the request to the kernel. */
export class Edits {
  place: Place = { layer: "", channel: 0 };
  known = 1;
  pressed: { place: Place; known: number } | null = null;
  name = el("span", { class: "hv-dim hv-what" });
  factor = el("input", { type: "range", min: 0, max: 2, step: 0.05, class: "hv-factor" });
  number = el("b", { class: "hv-number-now" });
  off = el("button", { class: "hv-toggle" }, "off");
  shownRun: HTMLSelectElement;
  list = el("span", { class: "hv-edits" });
  restore = el("button", { class: "hv-toggle", title: "undo all edits" }, "restore all");
  first: HTMLDivElement;
  second: HTMLDivElement;
  root: HTMLDivElement;
  drawn = "";
  timer = 0;

  constructor(public onEdit: (what: AnyRequest) => void, onRun: (run: string) => void) {
    this.factor.value = "1";
    const runs = ["edited", "original", "difference"];
    this.shownRun = menu(
      "whose pictures are shown",
      runs.map((name) => [name, name]),
      onRun,
    );
    this.restore.addEventListener("click", () => onEdit({ set: "edits", keys: [] }));
    this.first = el(
      "div",
      { class: "hv-line hv-hands" },
      this.name,
      this.factor,
      this.number,
      this.off,
    );
    this.second = el(
      "div",
      { class: "hv-line hv-hands" },
      el("span", { class: "hv-dim hv-what" }, "shown:"),
      this.shownRun,
      this.restore,
      this.list,
    );
    this.root = el("div", {}, this.first, this.second);
    this.factor.addEventListener("input", () => this.moved());
    // The edit is for the channel shown at pointerdown, even if another is shown at the click.
    this.off.addEventListener("pointerdown", () => {
      this.pressed = { place: this.place, known: this.known };
    });
    this.off.addEventListener("click", () => {
      const { place, known } = this.pressed ?? { place: this.place, known: this.known };
      this.pressed = null;
      const factor = known === 0 ? 1 : 0;
      if (place.layer === this.place.layer && place.channel === this.place.channel) {
        this.stand(factor);
      }
      this.send(factor, place);
    });
    this.list.addEventListener("click", (event: MouseEvent) => {
      const chosen = (event.target as HTMLElement).closest("button");
      if (chosen) onEdit({ set: "drop", key: Number(chosen.dataset.key) });
    });
  }

  /** @param factor Shown by the slider and the number. */
  stand(factor: number) {
    if (this.factor.value !== String(Math.min(factor, 2))) this.factor.value = String(factor);
    setText(this.number, factor.toFixed(2));
  }

  /** The slider moves: the number at once, the network when it rests a moment. */
  moved() {
    this.stand(Number(this.factor.value));
    clearTimeout(this.timer);
    const [factor, { place }] = [Number(this.factor.value), this];
    this.timer = setTimeout(() => this.send(factor, place), REST);
  }

  /** @param place The channel to edit. */
  send(factor: number, place: Place) {
    clearTimeout(this.timer);
    this.timer = 0;
    this.onEdit({ set: "factor", factor, ...place });
  }

  /**
   * @param runs Names of the original run, the edited run and the difference.
   * @param kind The word for a channel: "head" for attention.
   */
  show(edits: EditFacts[], at: Place & { shown_run: string }, runs: string[], kind: string) {
    const { layer, channel } = at;
    const moved = layer !== this.place.layer || channel !== this.place.channel;
    this.place = { layer, channel };
    const own = edits.filter((each) => each.layer === layer && each.channel === channel);
    this.known = own.at(-1)?.factor ?? 1;
    setText(this.name, `scale ${kind} ${channel}:`);
    setAttribute(this.factor, "aria-label", `factor of ${channel}`);
    setAttribute(this.off, "aria-pressed", this.known === 0 ? "true" : "false");
    const off = kind === "head" ? "switch the head off" : "switch the channel off";
    setAttribute(this.off, "title", this.known === 0 ? "switch it on again" : off);
    // While the slider is in use, it is ahead of the kernel.
    if (moved || (!this.timer && document.activeElement !== this.factor)) this.stand(this.known);
    setAttribute(this.factor, "aria-valuetext", this.number.textContent ?? "");
    visible(this.second, runs.length > 0 || edits.length > 0);
    const [original, edited, difference] = runs;
    const names = { edited, original, difference };
    for (const option of this.shownRun.options) {
      setText(option, names[option.value as keyof typeof names] ?? option.value);
    }
    choose(this.shownRun, at.shown_run);
    const all = JSON.stringify(edits);
    if (all === this.drawn) return;
    this.drawn = all;
    visible(this.restore, edits.length > 1);
    const layers = [...new Set(edits.map((each) => each.layer))];
    this.list.replaceChildren(
      ...layers.flatMap((layer) => chipsOf(layer, edits.filter((each) => each.layer === layer))),
    );
  }
}

/**
 * A button for each edit of a layer; several of them are framed together, and have the layer's name once.
 */
function chipsOf(layer: string, edits: EditFacts[]) {
  const chip = ({ words, key }: EditFacts, shown: string) =>
    el("button", {
      class: "hv-edit",
      "data-key": key,
      title: `remove: ${words}`,
      "aria-label": `${words}, remove`,
    }, `${middle(shown, CHIP)} ✕`);
  if (edits.length === 1) return edits.map((edit) => chip(edit, edit.words));
  const named = edits.every(({ words }) => words.startsWith(`${layer}, `));
  const chips = edits.map((edit) =>
    chip(edit, named ? edit.words.slice(layer.length + 2) : edit.words)
  );
  return [
    el(
      "span",
      { class: "hv-edits-of-layer" },
      ...(named ? [el("span", { class: "hv-dim" }, layer)] : []),
      ...chips,
    ),
  ];
}
