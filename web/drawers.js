// A row of tabs below the pictures, all closed at first; each opens a drawer under it.

import { el, setAttribute, setText, visible } from "./dom.js";

/** @typedef {{button: HTMLButtonElement, sheet: HTMLElement, toggled: (open: boolean) => void, offered: boolean}} Drawer */

/** One drawer is open at a time. */
export class Drawers {
  constructor() {
    /** @type {Map<string, Drawer>} */
    this.all = new Map();
    this.open = "";
    this.tabs = el("div", { class: "hv-tabs", role: "group", "aria-label": "more about this view" });
    this.root = el("div", { class: "hv-drawers" }, this.tabs);
    /** @type {(name: string) => void} */
    this.onOpen = () => {};
    // What is asked for fills its drawer later: until the next move of the user it stays in view.
    this.fresh = false;
    const follow = new ResizeObserver(() => this.fresh && this.reveal());
    this.watch = (/** @type {HTMLElement} */ sheet) => follow.observe(sheet);
    for (const move of ["pointerdown", "wheel", "keydown"])
      addEventListener(move, () => {
        this.fresh = false;
      }, { capture: true, passive: true });
  }

  /**
   * @param {string} name
   * @param {string} label
   * @param {string} title
   * @param {HTMLElement} content
   * @param {(open: boolean) => void} [toggled]
   */
  add(name, label, title, content, toggled = () => {}) {
    const button = el("button", { type: "button", class: "hv-tab", title, "aria-expanded": "false" }, label);
    button.addEventListener("click", () => this.toggle(name));
    const sheet = el("div", { class: `hv-drawer hv-drawer-${name}`, role: "region", "aria-label": label, hidden: true }, content);
    this.all.set(name, { button, sheet, toggled, offered: true });
    this.tabs.append(button);
    this.root.append(sheet);
    this.watch(sheet);
  }

  /**
   * Whether there is anything in a drawer.
   * @param {string} name
   * @param {boolean} offered
   */
  offer(name, offered) {
    const drawer = this.all.get(name);
    if (!drawer || drawer.offered === offered) return;
    drawer.offered = offered;
    visible(drawer.button, offered);
    if (!offered && this.open === name) this.go("");
  }

  /**
   * @param {string} name
   * @param {string} label
   */
  rename(name, label) {
    const drawer = this.all.get(name);
    if (drawer) setText(drawer.button, label);
  }

  /** @param {string} name */
  toggle(name) {
    this.go(this.open === name ? "" : name);
    this.fresh = this.open !== "";
    if (this.fresh) this.reveal();
  }

  /** @param {string} name Empty: all are closed. */
  go(name) {
    const next = this.all.get(name)?.offered ? name : "";
    if (next === this.open) return;
    const before = this.open;
    this.open = next;
    for (const [own, { button, sheet }] of this.all) {
      const on = own === next;
      if (!on && sheet.contains(document.activeElement)) button.focus();
      visible(sheet, on);
      setAttribute(button, "aria-expanded", String(on));
    }
    this.all.get(before)?.toggled(false);
    this.all.get(next)?.toggled(true);
    this.onOpen(next);
  }

  reveal() {
    this.all.get(this.open)?.sheet.scrollIntoView({ block: "nearest" });
  }
}
