// A button that opens a small sheet beside it; Escape, or a click elsewhere, closes it.

import { el, setAttribute, visible } from "./dom.ts";

const EDGE = 4; // pixels between a sheet and the edge of the view

/** `root` holds the button and, below it, the sheet. */
export class Popup {
  button: HTMLButtonElement;
  sheet: HTMLDivElement;
  root: HTMLSpanElement;
  elsewhere: (event: Event) => void;

  /** @param words On the button. */
  constructor(words: string, title: string, ...children: Node[]) {
    this.button = el("button", {
      type: "button",
      class: "hv-opener",
      title,
      "aria-expanded": "false",
    }, words);
    this.sheet = el(
      "div",
      { class: "hv-popup", role: "group", "aria-label": title, hidden: true },
      ...children,
    );
    this.root = el("span", { class: "hv-holder" }, this.button, this.sheet);
    this.elsewhere = (event: Event) => {
      if (!event.composedPath().includes(this.root)) this.close();
    };
    this.button.addEventListener("click", () => (this.sheet.hidden ? this.open() : this.close()));
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.sheet.hidden) return;
      event.stopPropagation();
      this.close();
      this.button.focus();
    });
  }

  open() {
    visible(this.sheet, true);
    setAttribute(this.button, "aria-expanded", "true");
    addEventListener("pointerdown", this.elsewhere, true);
    addEventListener("focusin", this.elsewhere, true);
    const app = this.root.closest(".hookviz-app") ?? document.body;
    this.sheet.style.translate = "";
    const [own, whole] = [this.sheet.getBoundingClientRect(), app.getBoundingClientRect()];
    const beyond = Math.max(own.right - whole.right + EDGE, 0);
    this.sheet.style.translate = `${Math.max(-beyond, whole.left + EDGE - own.left)}px`;
  }

  close() {
    visible(this.sheet, false);
    setAttribute(this.button, "aria-expanded", "false");
    removeEventListener("pointerdown", this.elsewhere, true);
    removeEventListener("focusin", this.elsewhere, true);
  }
}
