// Counts the changes made in the browser, so that a late answer cannot undo a newer change.

import type { AnyRequest } from "./messages.d.ts";

// These belong together: a channel is one of a layer.
const TOGETHER = ["layer", "channel", "call", "sample", "depth", "order", "place"];

/** A request as the kernel gets it: with the settings that were changed since the last one. */
type SentRequest = AnyRequest & { settings: Record<string, unknown>; moved: number };

interface Move {
  count: number;
  value: unknown;
}

/** The browser's changes; the kernel says how many of them it has handled. */
export class Moves {
  count: number;
  /** By setting: its latest change here. */
  latest: Map<string, Move> = new Map();

  constructor(public handled: () => number) {
    this.count = handled();
  }

  /** Something was changed here. */
  note(changes: Record<string, unknown>) {
    this.count += 1;
    for (const [name, value] of Object.entries(changes)) {
      this.latest.set(name, { count: this.count, value });
    }
  }

  /** What the kernel does not know of yet. */
  get unhandled() {
    const handled = this.handled();
    const found = [...this.latest].filter(([, { count }]) => count > handled);
    return Object.fromEntries(found.map(([name, { value }]) => [name, value]));
  }

  /** The kernel's settings, but for those that were changed here since. */
  merged(settings: Record<string, unknown>) {
    const own = new Set(Object.keys(this.unhandled));
    const together = TOGETHER.some((name) => own.has(name));
    const stays = (name: string) => own.has(name) || (together && TOGETHER.includes(name));
    return Object.fromEntries(Object.entries(settings).filter(([name]) => !stays(name)));
  }
}

/**
 * Requests that change the network or its target, one at a time: a later one may take the place of one that waits.
 */
export class Requests {
  added = 0;
  doing = 0; // the count of what the kernel has not handled yet; 0 if there is none
  waiting: AnyRequest[] = [];
  /** The target that was asked for last, as it is typed, until it is shown. */
  written: string | null = null;

  constructor(public moves: Moves, public send: (message: SentRequest) => void) {
  }

  add(what: AnyRequest) {
    this.added += 1;
    const last = this.waiting.at(-1);
    if (what.set === "target") {
      this.written = what.written ?? what.number?.toString() ?? null;
      this.waiting = this.waiting.filter((each) => each.set !== "target");
    } else if (what.set === "factor" && last && alike(what, last)) this.waiting.pop();
    this.waiting.push(what);
    this.next();
  }

  /** Nothing will be handled any more. */
  end() {
    this.doing = 0;
    this.waiting = [];
    this.written = null;
  }

  /** Go on, if the kernel has handled the last one. */
  next() {
    if (this.doing && this.moves.handled() < this.doing) return;
    this.doing = 0;
    const what = this.waiting.shift();
    if (!what) {
      this.written = null;
      return;
    }
    const settings = this.moves.unhandled;
    this.moves.note({});
    this.doing = this.moves.count;
    this.send({ ...what, settings, moved: this.doing });
  }
}

function alike(one: AnyRequest, other: AnyRequest) {
  if (one.set !== "factor" || other.set !== "factor") return false;
  return one.layer === other.layer && one.channel === other.channel;
}
