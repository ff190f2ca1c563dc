// What the browser has changed, counted, so that nothing arrives late and wins.

// Of these one means little without the others: a channel is one of a layer.
const TOGETHER = ["layer", "channel", "call", "sample", "depth", "order", "place"];

/**
 * @typedef {{count: number, value: any}} Move
 * @typedef {import("./messages.d.ts").AnyRequest} AnyRequest
 */

/** The browser's changes; the kernel says how many of them it has handled. */
export class Moves {
  /** @param {() => number} handled */
  constructor(handled) {
    this.handled = handled;
    this.count = handled();
    /** @type {Map<string, Move>} By setting: its latest change here. */
    this.latest = new Map();
  }

  /**
   * Something was changed here.
   * @param {Record<string, any>} changes
   */
  note(changes) {
    this.count += 1;
    for (const [name, value] of Object.entries(changes)) this.latest.set(name, { count: this.count, value });
  }

  /** What the kernel does not know of yet. */
  get unhandled() {
    const handled = this.handled();
    const found = [...this.latest].filter(([, { count }]) => count > handled);
    return Object.fromEntries(found.map(([name, { value }]) => [name, value]));
  }

  /**
   * The kernel's settings, but for those that were changed here since.
   * @param {Record<string, any>} settings
   */
  merged(settings) {
    const own = new Set(Object.keys(this.unhandled));
    const together = TOGETHER.some((name) => own.has(name));
    const stays = (/** @type {string} */ name) => own.has(name) || (together && TOGETHER.includes(name));
    return Object.fromEntries(Object.entries(settings).filter(([name]) => !stays(name)));
  }
}

/** Requests that change the network or its target, one at a time: a later one may take the place of one that waits. */
export class Requests {
  /**
   * @param {Moves} moves
   * @param {(message: any) => void} send
   */
  constructor(moves, send) {
    this.moves = moves;
    this.send = send;
    this.doing = 0; // the count of what the kernel has not handled yet; 0 if there is none
    /** @type {AnyRequest[]} */
    this.waiting = [];
    /** @type {number | null} The class that was asked for last, until it is shown. */
    this.target = null;
    /** @type {string | null} As it is typed, a class by its number. */
    this.written = null;
  }

  /** @param {AnyRequest} what */
  add(what) {
    if (what.set === "target") {
      this.target = what.number ?? null;
      this.written = what.written ?? String(what.number);
    }
    const last = this.waiting.at(-1);
    if (what.set === "target") this.waiting = this.waiting.filter((each) => each.set !== "target");
    else if (what.set === "factor" && last && alike(what, last)) this.waiting.pop();
    this.waiting.push(what);
    this.next();
  }

  /** Nothing will be handled any more. */
  end() {
    this.doing = 0;
    this.waiting = [];
    this.target = this.written = null;
  }

  /** Go on, if the kernel has handled the last one. */
  next() {
    if (this.doing && this.moves.handled() < this.doing) return;
    this.doing = 0;
    const what = this.waiting.shift();
    if (!what) {
      this.target = null;
      this.written = null;
      return;
    }
    const settings = this.moves.unhandled;
    this.moves.note({});
    this.doing = this.moves.count;
    this.send({ ...what, settings, moved: this.doing });
  }
}

/**
 * @param {AnyRequest} one
 * @param {AnyRequest} other
 */
function alike(one, other) {
  if (one.set !== "factor" || other.set !== "factor") return false;
  return one.layer === other.layer && one.channel === other.channel;
}
