// A row of tabs below the pictures, all closed at first; each opens a drawer under it.

import { el, setAttribute, setText, visible } from "./dom.ts";

interface Drawer {
  button: HTMLButtonElement;
  sheet: HTMLElement;
  toggled: (open: boolean) => void;
  offered: boolean;
}

/** One drawer is open at a time. */
export class Drawers {
  all: Map<string, Drawer> = new Map();
  open = "";
  tabs = el("div", { class: "hv-tabs", role: "group", "aria-label": "more about this view" });
  root: HTMLDivElement;
  onOpen: (name: string) => void;
  // The content of a drawer arrives later: the drawer stays in view until the user's next input.
  fresh = false;
  watch: (sheet: HTMLElement) => void;

  constructor() {
    this.root = el("div", { class: "hv-drawers" }, this.tabs);
    this.onOpen = (): void => {};
    const follow = new ResizeObserver(() => this.fresh && this.reveal());
    this.watch = (sheet: HTMLElement) => follow.observe(sheet);
  }

  add(
    name: string,
    label: string,
    title: string,
    content: HTMLElement,
    toggled: (open: boolean) => void = () => {},
  ) {
    const button = el("button", {
      type: "button",
      class: "hv-tab",
      title,
      "aria-expanded": "false",
    }, label);
    button.addEventListener("click", () => this.toggle(name));
    const sheet = el("div", {
      class: `hv-drawer hv-drawer-${name}`,
      role: "region",
      "aria-label": label,
      hidden: true,
    }, content);
    this.all.set(name, { button, sheet, toggled, offered: true });
    this.tabs.append(button);
    this.root.append(sheet);
    this.watch(sheet);
  }

  /** Show the tab of a drawer only if the drawer has content. */
  offer(name: string, offered: boolean) {
    const drawer = this.all.get(name);
    if (!drawer || drawer.offered === offered) return;
    drawer.offered = offered;
    visible(drawer.button, offered);
    if (!offered && this.open === name) this.go("");
  }

  rename(name: string, label: string) {
    const drawer = this.all.get(name);
    if (drawer) setText(drawer.button, label);
  }

  toggle(name: string) {
    this.go(this.open === name ? "" : name);
    this.fresh = this.open !== "";
    if (this.fresh) this.reveal();
  }

  /** @param name Empty: all are closed. */
  go(name: string) {
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
