// The modules of a model, one lit; a click or Enter chooses one, up and down move the focus.

import { el, setAttribute } from "./dom.ts";

/** A tree of modules; `onPick` gets the place of one. */
export class ModuleTree {
  lit = 0;
  rows: HTMLDivElement[];
  root: HTMLDivElement;

  /** @param modules Name and type, as `named_modules()` has them. */
  constructor(modules: Array<[string, string]>, public onPick: (place: number) => void) {
    this.rows = modules.map(([name, type]) => {
      const level = name ? name.split(".").length : 0;
      const row = el(
        "div",
        {
          role: "treeitem",
          class: "hv-module",
          tabindex: "-1",
          "aria-level": level + 1,
          title: name || "the model",
        },
        el("i", { "aria-hidden": "true" }),
        el("b", {}, name.split(".").pop() || "(model)"),
        el("span", { class: "hv-dim" }, type),
      );
      row.setAttribute("aria-label", `${name || "(model)"} ${type}`);
      row.style.setProperty("--level", String(level));
      return row;
    });
    this.root = el(
      "div",
      { class: "hv-tree", role: "tree", "aria-label": "modules" },
      ...this.rows,
    );
    this.root.addEventListener("click", (event: MouseEvent) => this.pick(event.target));
    this.root.addEventListener("keydown", (event: KeyboardEvent) => this.pressed(event));
  }

  pick(target: EventTarget | null) {
    const row = (target as HTMLElement).closest(".hv-module");
    if (row && row.getAttribute("aria-disabled") !== "true") {
      this.onPick(this.rows.findIndex((each) => each === row));
    }
  }

  pressed(event: KeyboardEvent) {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (by) {
      const next = this.rows[this.rows.findIndex((row) => row === document.activeElement) + by];
      if (next) this.focusable(next).focus();
    } else if (event.key === "Enter" || event.key === " ") this.pick(event.target);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The one row that Tab comes to. */
  focusable(row: HTMLElement) {
    for (const each of this.rows) setAttribute(each, "tabindex", each === row ? 0 : -1);
    return row;
  }

  light(place: number, side: string) {
    const [before, row] = [this.rows[this.lit], this.rows[place]];
    if (before) setAttribute(before, "aria-current", null);
    this.lit = place;
    if (!row) return;
    setAttribute(row, "aria-current", "true");
    setAttribute(row, "data-side", side);
    if (!this.root.contains(document.activeElement)) this.focusable(row);
    const { offsetTop: top, offsetHeight: high } = row;
    const { scrollTop, clientHeight: room } = this.root;
    if (top < scrollTop || top + high > scrollTop + room) {
      this.root.scrollTop = top - (room - high) / 2;
    }
  }

  /** @param found Which modules can be chosen. */
  only(found: Set<number>) {
    this.rows.forEach((row, place) => setAttribute(row, "aria-disabled", !found.has(place)));
  }
}
