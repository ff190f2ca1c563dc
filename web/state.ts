// All that can be set, and one event when something of it changes.

import type { Settings } from "./messages.d.ts";

export interface Ends {
  low: number;
  high: number;
}
/** A place in the pictures, from the top and from the left, as shares of them. */
export type Place = [number, number];
export type Values = Settings & {
  zoom: { k: number; x: number; y: number };
  hover: Place | null;
  ends: Ends | null;
  slopeEnds: Ends | null;
  health: string;
  fed: boolean;
};

/** Row and column of a place, in maps of this size. */
export function positionIn(place: Place, size: number[]): [number, number] {
  const inside = (axis: 0 | 1) => Math.min(Math.floor(place[axis] * size[axis]), size[axis] - 1);
  return [inside(0), inside(1)];
}

/** The middle of a position; undefined outside of the maps. */
export function placeIn(
  [row = -1, column = -1]: number[],
  [height = 0, width = 0]: number[],
): Place | undefined {
  const inside = row >= 0 && row < height && column >= 0 && column < width;
  return inside ? [(row + 0.5) / height, (column + 0.5) / width] : undefined;
}

const FITTED = { k: 1, x: 0, y: 0 };

/** Settings with one listener list. */
export class State {
  names: string[];
  values: Values;
  listeners: Array<(changed: Set<string>) => void> = [];

  /** @param settings As Python declares them; all else is the browser's alone. */
  constructor(settings: Settings) {
    this.names = Object.keys(settings);
    this.values = {
      zoom: FITTED,
      hover: null,
      ends: null,
      slopeEnds: null,
      health: "gradient",
      fed: false,
      ...settings,
    };
  }

  onChange(listener: (changed: Set<string>) => void) {
    this.listeners.push(listener);
  }

  /** Set some; those who listen are told what changed, if anything did. */
  set(changes: Partial<Values>) {
    const before: Record<string, unknown> = { ...this.values };
    const changed = new Set(
      Object.entries(changes).flatMap(([name, value]) => (before[name] === value ? [] : [name])),
    );
    if (!changed.size) return;
    this.values = { ...this.values, ...changes };
    for (const listener of this.listeners) listener(changed);
  }

  /** The explorer's own settings. */
  get settings(): Settings & Record<string, unknown> {
    const all: Record<string, unknown> = { ...this.values };
    return Object.fromEntries(this.names.map((name) => [name, all[name]])) as
      & Settings
      & Record<string, unknown>;
  }

  /** What is looked at: under the pointer, or else the chosen place. */
  get spot() {
    return this.values.hover ?? this.values.place;
  }

  /** All panels as they were. */
  fit() {
    this.set({ zoom: FITTED });
  }

  /** Zoom about a point of the pictures, given as shares of them. */
  zoom(factor: number, u: number, v: number) {
    const { k, x, y } = this.values.zoom;
    const next = Math.min(Math.max(k * factor, 1), 64);
    this.pan(next, u - ((u - x) * k) / next, v - ((v - y) * k) / next);
  }

  /** What part is seen: from x, y on, k times enlarged. */
  pan(k: number, x: number, y: number) {
    const last = 1 - 1 / k;
    const inside = (share: number) => Math.min(Math.max(share, 0), last);
    this.set({ zoom: k === 1 ? FITTED : { k, x: inside(x), y: inside(y) } });
  }
}
