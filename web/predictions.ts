// What the model answered, as bars; a click asks for the gradient of that class.

import { el, setAttribute } from "./dom.ts";
import type { Prediction } from "./messages.d.ts";

/** Bars; `onChoose` gets a class number, and whether it is to be subtracted. */
export class Predictions {
  root = el("div", { class: "hv-predictions", role: "group", "aria-label": "predictions" });
  drawn = "";

  constructor(onChoose: (number: number, minus: boolean) => void) {
    this.root.addEventListener("click", (event: MouseEvent) => {
      const chosen = (event.target as HTMLElement).closest(".hv-prediction");
      if (chosen instanceof HTMLElement) onChoose(Number(chosen.dataset.number), event.shiftKey);
    });
  }

  /** @param words What a click does. */
  show(predictions: Prediction[], target: { name: string; number: number | null }, words: string) {
    const key = JSON.stringify([predictions, target, words]);
    if (key === this.drawn) return;
    this.drawn = key;
    const known = predictions.some((each) => each.number === target.number);
    const all: HTMLElement[] = predictions.map((each) =>
      this.bar(each, each.number === target.number, words)
    );
    if (!known && target.name !== "nothing") {
      all.push(
        el(
          "span",
          { class: "hv-prediction hv-on hv-other", title: target.name },
          el("b", {}, target.name),
        ),
      );
    }
    const focused = this.root.contains(document.activeElement) ? document.activeElement : null;
    this.root.replaceChildren(...all);
    // Who came by keyboard stays at the class, which may have another place now.
    if (focused instanceof HTMLElement) {
      all.find((each) => each.dataset.number === focused.dataset.number)?.focus();
    }
  }

  bar(prediction: Prediction, on: boolean, words: string) {
    const { number, name, value } = prediction;
    const share = el("i", { class: "hv-share" });
    const isShare = value !== null && value >= 0 && value <= 1 && prediction.words.endsWith("%");
    share.style.width = isShare ? `${100 * value}%` : "0";
    const bar = el(
      "button",
      { class: `hv-prediction${on ? " hv-on" : ""}`, "data-number": number },
      share,
      el("b", {}, name),
      el("em", {}, prediction.words),
    );
    if (prediction.change) {
      if (isShare && prediction.before !== null) {
        const before = el("s", { class: "hv-before" });
        before.style.left = `${100 * prediction.before}%`;
        bar.append(before);
      }
      // There is room for the first part; the title has all of them.
      const parts = prediction.change.split(" · ").map((each, place) =>
        el("span", {}, `${place ? " · " : ""}${each}`)
      );
      bar.append(el("small", {}, ...parts));
    }
    setAttribute(bar, "aria-pressed", on ? "true" : "false");
    setAttribute(
      bar,
      "title",
      `${name}, class ${number}, ${prediction.words}${
        prediction.change && ` (${prediction.change})`
      }: ${words}`,
    );
    return bar;
  }
}
