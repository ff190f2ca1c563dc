// All keys, and a tour of half a minute: what "?" opens.

import { el, setText, sure } from "./dom.ts";
import type { App } from "./app.ts";

const KEY_WORDS: Array<[string, string]> = [
  ["← →", "previous / next channel"],
  ["↑ ↓", "previous / next layer"],
  ["Home, End", "first / last channel; on the layer's slider: first / last layer"],
  ["Page ↑ ↓", "previous / next page of channels"],
  ["⇧ ← → ↑ ↓", "move the position"],
  ["b", "channels for this position: sorted by how far their value there is above their mean"],
  ["l", "channels most similar to the shown one"],
  ["t", "the channel that contributes most to the target"],
  ["a", "heatmaps of all layers"],
  ["/", "find a layer by name, type or size"],
  ["w", "why this value?"],
  ["m", "map of the network"],
  ["Ctrl + scroll", "zoom; after clicking a picture, scroll alone"],
  ["drag, double-click", "move the enlarged picture, show all of it"],
  ["⇧ click", "compare the target with a class or a position of the output"],
  ["Ctrl + z, Ctrl + ⇧ z", "undo, redo: edits, target, layer, channel"],
  ["Esc", "clear the position"],
  ["?", "this list"],
];

const HANDS = new Set(["⇧ click"]); // which need the notebook

/** A modal sheet over the view; Esc closes it, and its keys are its own. */
export function openSheet(app: App, label: string, ...children: Node[]) {
  const made = el("dialog", { class: "hv-dialog", "aria-label": label }, ...children);
  made.addEventListener("keydown", (event) => event.stopPropagation());
  made.addEventListener("click", (event) => {
    if (event.target === made) made.close(); // the backdrop
  });
  made.addEventListener("close", () => made.remove());
  app.root.append(made);
  made.showModal();
  return made;
}

export function openHelp(app: App) {
  const keys = KEY_WORDS.filter(([key]) =>
    (key !== "w" || app.source.why) && (key !== "m" || app.source.map) &&
    (app.source.write || !HANDS.has(key))
  );
  const rows = keys.map(([key, does]) =>
    el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, does))
  );
  const start = el("button", { type: "button", class: "hv-toggle" }, "a tour of half a minute");
  const close = el("button", { type: "button", class: "hv-toggle" }, "close");
  const made = openSheet(
    app,
    "keys",
    el("h2", {}, "Keys"),
    el("table", { class: "hv-keys" }, el("tbody", {}, ...rows)),
    el("div", { class: "hv-line" }, start, close),
  );
  close.addEventListener("click", () => made.close());
  start.addEventListener("click", () => {
    made.close();
    beginTour(app);
  });
  start.focus();
}

/** Five parts of the face, and what they are for. */
function stops({ parts, source }: App): Array<[HTMLElement, string]> {
  const off = source.live
    ? " Under Edit you scale it or switch it off, and the prediction follows."
    : "";
  return [
    [
      parts.layerRow,
      "The network: each column is a layer, from the input to the output. Click one, or press ↑ ↓.",
    ],
    [parts.answers, "The predictions. Click a class to see its gradient and heatmap."],
    [parts.map.root, `One channel of the layer's output. Press ← → for the others.${off}`],
    [
      parts.input.root,
      "Click a position in any picture: you see its value and the part of the input that it depends on. Key b shows the channel that responds most there, measured against its mean.",
    ],
    [parts.mosaic.root, "All channels of the layer, in the order chosen above. Click one."],
  ];
}

function beginTour(app: App) {
  const all = stops(app).filter(([part]) => !part.hidden);
  const count = el("span", { class: "hv-dim" });
  const words = el("p", { "aria-live": "polite" });
  const button = (name: string) => el("button", { type: "button", class: "hv-toggle" }, name);
  const [back, forth, end] = [button("back"), button("next"), button("close")];
  const made = openSheet(
    app,
    "tour",
    words,
    el("div", { class: "hv-line" }, count, back, forth, end),
  );
  made.classList.add("hv-tour");
  let place = 0;
  const go = (to: number) => {
    if (to >= all.length) return made.close();
    for (const [part] of all) part.classList.remove("hv-pointed");
    place = Math.max(to, 0);
    const [part, said] = sure(all[place]);
    part.classList.add("hv-pointed");
    part.scrollIntoView({ block: "nearest" });
    setText(words, said);
    setText(count, `${place + 1} of ${all.length}`);
    back.disabled = place === 0;
    beside(made, part.getBoundingClientRect());
    return undefined;
  };
  back.addEventListener("click", () => go(place - 1));
  forth.addEventListener("click", () => go(place + 1));
  end.addEventListener("click", () => made.close());
  made.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") go(place + 1);
    if (event.key === "ArrowLeft") go(place - 1);
  });
  made.addEventListener("close", () => {
    for (const [part] of all) part.classList.remove("hv-pointed");
  });
  go(0);
  forth.focus();
}

/** Put a sheet where it does not hide the part that it is about: below, above, or at a side. */
function beside(made: HTMLElement, part: DOMRect) {
  const { width, height } = made.getBoundingClientRect();
  const [wide, high] = [document.documentElement.clientWidth, globalThis.innerHeight];
  const inside = (at: number, most: number) => Math.max(8, Math.min(at, most - 8));
  let [left, top] = [part.left, part.bottom + 8];
  if (top + height > high) top = part.top - height - 8;
  if (top < 8) {
    top = inside(part.top, high - height);
    left = part.right + 8 + width < wide ? part.right + 8 : part.left - width - 8;
  }
  made.style.left = `${inside(left, wide - width)}px`;
  made.style.top = `${inside(top, high - height)}px`;
}
