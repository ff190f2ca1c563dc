// A row of tabs below the pictures, all closed at first; each opens a drawer under it.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { ComponentChildren } from "preact";

/** Which drawer is open: one at a time. */
export class Drawers {
  open = ""; // empty: all are closed
  offered: Set<string> = new Set();
  root: HTMLElement | null = null;
  // A drawer's content arrives later: the drawer stays in view until the next input elsewhere.
  fresh = false;

  /** @param onChange Is called with the names of the closed and of the opened drawer. */
  constructor(public onChange: (closed: string, opened: string) => void) {}

  offer(all: Drawer[]) {
    this.offered = new Set(all.flatMap(({ name, isOffered }) => isOffered ? [name] : []));
    if (this.open && !this.offered.has(this.open)) this.go("");
  }

  toggle(name: string) {
    this.go(this.open === name ? "" : name);
    this.fresh = this.open !== "";
  }

  go(name: string) {
    const before = this.open;
    const next = this.offered.has(name) ? name : "";
    if (next === before) return;
    const closing = this.root?.querySelector(".hv-drawer:not([hidden])");
    if (closing?.contains(document.activeElement)) {
      this.root?.querySelector<HTMLElement>("[aria-expanded=true]")?.focus();
    }
    this.open = next;
    this.onChange(before, next);
  }

  /** A click or a key in the open drawer may make it grow; other input leaves it. */
  follow(event: string, target: EventTarget | null) {
    const drawer = this.root?.querySelector(".hv-drawer:not([hidden])");
    this.fresh = event !== "wheel" && Boolean(drawer?.contains(target as Node | null));
  }

  reveal() {
    if (!this.fresh) return;
    this.root?.querySelector(".hv-drawer:not([hidden])")?.scrollIntoView({ block: "nearest" });
  }
}

export interface Drawer {
  name: string;
  label: string;
  title: string;
  /** Whether it has content. */
  isOffered: boolean;
  /** On the tab, in place of the label. */
  tab?: string;
  content: (isOpen: boolean) => ComponentChildren;
}

export function DrawersView({ drawers, all }: { drawers: Drawers; all: Drawer[] }) {
  const root = useRef<HTMLDivElement>(null);
  const { open } = drawers;
  useLayoutEffect(() => {
    drawers.root = root.current;
    const follow = new ResizeObserver(() => drawers.reveal());
    for (const sheet of root.current!.querySelectorAll(".hv-drawer")) follow.observe(sheet);
    return () => follow.disconnect();
  }, []);
  return (
    <div ref={root} class="hv-drawers">
      <div class="hv-tabs" role="group" aria-label="more about this view">
        {all.map(({ name, label, tab = label, title, isOffered }) => (
          <button
            key={name}
            type="button"
            class="hv-tab"
            title={title}
            aria-expanded={open === name}
            hidden={!isOffered}
            onClick={() => drawers.toggle(name)}
          >
            {tab}
          </button>
        ))}
      </div>
      {all.map(({ name, label, content }) => (
        <div
          key={name}
          class={`hv-drawer hv-drawer-${name}`}
          role="region"
          aria-label={label}
          hidden={open !== name}
        >
          {content(open === name)}
        </div>
      ))}
    </div>
  );
}
