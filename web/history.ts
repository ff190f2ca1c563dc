// Undo and redo: one history of edits, input, target, layer and channel.

import type { App, Awaited } from "./app.ts";
import type { TargetFacts } from "./messages.d.ts";
import type { Input } from "./network.ts";
import type { Place } from "./state.ts";

interface Moment {
  layer: string;
  channel: number;
  /** The position that was looked at last. Choosing another one does not count as a step. */
  place: Place | null;
  /** How the channel is chosen instead, if the layer was not loaded yet. */
  awaited: Awaited | null;
  target: TargetFacts;
  edits: number[];
  /** What the network gets, where a page can bring it back; painting changes it. */
  input: Input | undefined;
}

const TOGETHER = 700; // milliseconds: layers and channels that follow each other sooner are one step
const LONGEST = 300; // moments

/** The moments of a view, and which of them is shown. */
export class History {
  moments: Moment[] = [];
  at = 0;
  walked = -Infinity; // the time of the last change of layer or channel
  going = false; // whether the kernel still works on a step back or forth
  requested = 0; // number of requests to the source, after the last step back or forth
  overtook = false; // whether that was a step back before the result to undo was shown

  constructor(
    public app: Pick<App, "at" | "awaited" | "facts" | "schedule" | "source" | "goTo">,
  ) {}

  get now(): Moment {
    const { at: { layer, channel, place }, awaited, facts, source } = this.app;
    return {
      layer,
      channel,
      place,
      awaited,
      target: facts.target,
      edits: facts.edits.map(({ key }) => key),
      input: source.input,
    };
  }

  /** Begin again with the state that is drawn next. */
  clear() {
    Object.assign(this, { moments: [], at: 0, walked: -Infinity, going: false });
    this.app.schedule();
  }

  /**
   * Add the shown moment if it is new.
   * @param isLoaded Until then, the channel may still change to the layer's own.
   */
  record(isLoaded = true) {
    const { now } = this;
    const current = this.moments[this.at];
    if (!current) {
      if (isLoaded) this.moments.push(now);
    } else if (isLoaded && current.awaited && this.isSameLayer(now, current)) {
      this.moments[this.at] = now;
    } else if (this.going) this.follow(now, current);
    else if (this.same(now, current)) {
      Object.assign(current, { place: now.place, input: now.input });
    } else if (isLoaded || !this.isWalk(now, current)) this.add(now, current);
  }

  /** Layers and channels in quick succession are one moment, so that one step leads back. */
  add(now: Moment, current: Moment) {
    const time = performance.now();
    const walk = this.isWalk(now, current);
    if (walk && time - this.walked < TOGETHER) this.moments[this.at] = now;
    else this.moments = [...this.moments.slice(0, this.at + 1), now].slice(-LONGEST);
    this.at = this.moments.length - 1;
    this.walked = walk ? time : -Infinity;
  }

  /** After a step back or forth: while the kernel is busy, it may show states between the two moments. */
  follow(now: Moment, wanted: Moment) {
    const { busy, requested } = this.app.source;
    this.going = Boolean(busy);
    if (this.same(now, wanted)) return;
    const isNew = (requested ?? 0) !== this.requested; // asked for after the step
    if (!busy && (isNew || this.isWalk(now, wanted))) this.add(now, wanted);
    // The kernel may end elsewhere: strokes, for example, are lost with their picture.
    else if (!busy) this.moments[this.at] = now;
    // What was undone before its result arrived can then be redone.
    else if (this.overtook && !isNew && this.isLast) this.moments.push(now);
  }

  /** Whether two moments differ in layer and channel only. */
  isWalk(one: Moment, other: Moment) {
    return this.same({ ...one, layer: other.layer, channel: other.channel }, other);
  }

  /** Whether two moments differ in the channel only. */
  isSameLayer(one: Moment, other: Moment) {
    return this.same({ ...one, channel: other.channel }, other);
  }

  same(one: Moment, other: Moment) {
    const key = ({ layer, channel, target, edits, input }: Moment) => {
      const { chosen, written, name } = target;
      return JSON.stringify([layer, channel, chosen && (written ?? name), edits, input?.key]);
    };
    return key(one) === key(other);
  }

  /** Whether the result of a request since the last step is not shown yet. */
  get underWay() {
    const { source } = this.app;
    return Boolean(source.busy) && source.requested !== this.requested;
  }

  get isFirst() {
    return this.at === 0 && !this.underWay;
  }

  get isLast() {
    return this.at >= this.moments.length - 1;
  }

  go(by: 1 | -1) {
    const { app, underWay } = this;
    if (!this.going) this.record();
    const overtakes = by < 0 && underWay;
    const to = overtakes ? this.at : this.at + by;
    const moment = this.moments[to];
    if (!moment) return;
    this.at = to;
    this.overtook = overtakes;
    const { layer, channel, place, awaited, target, edits, input } = moment;
    const { source, facts } = app;
    // While a request is under way, its result is not shown yet.
    const { busy } = source;
    if (busy || edits.join() !== this.now.edits.join()) {
      source.edit({ set: "edits", keys: edits });
    }
    const isSameTarget = target.chosen === facts.target.chosen &&
      target.written === facts.target.written;
    if (busy || !isSameTarget) source.retarget?.(target);
    if (input && input !== source.input) source.restore?.(input);
    this.requested = source.requested ?? 0;
    this.going = true;
    app.goTo({ layer, channel, place });
    app.awaited = awaited;
    app.schedule();
  }
}

/** Ctrl+Z and Ctrl+Shift+Z, or with Cmd, where no text is being written. */
export function listenToUndo(
  where: EventTarget,
  root: HTMLElement,
  history: History,
  signal: AbortSignal,
) {
  where.addEventListener("keydown", (given) => {
    const event = given as KeyboardEvent;
    const target = (event.composedPath()[0] ?? event.target) as HTMLElement;
    const inside = root.contains(target) || target === document.body;
    const writes = target.matches("textarea, input:not([type=range])");
    const pressed = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
    if (!pressed || writes || !inside) return;
    event.preventDefault();
    event.stopPropagation();
    history.go(event.shiftKey ? 1 : -1);
  }, { signal });
}
