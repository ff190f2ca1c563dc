// The part of the input that a position of a map depends on.

import type { FieldEnds } from "./messages.d.ts";

export interface Field {
  status: string;
  why: string;
  input: number[];
  map: number[];
  axes: string[];
  size: number[] | null;
  ends: FieldEnds[] | null;
}

/**
 * From where to where a place sees, in each dimension of the input; null if that is not known.
 * @param place Slice, row and column of the shown map.
 */
function seenFrom(field: Field, place: number[]) {
  if (!field.ends) return null;
  const own = place.slice(3 - field.map.length);
  const flat = own.reduce((sum, each, axis) => sum * (field.map[axis] ?? 1) + each, 0);
  return field.ends.map(({ along, from, to }) => {
    const at = along === null ? flat : own[along];
    return { from: from[at], to: to[at] };
  });
}

/**
 * The same as a part of the input's picture, in shares of it; null if there is nothing to outline.
 */
export function fieldPart(field: Field, place: number[]) {
  const seen = seenFrom(field, place);
  if (!seen) return null;
  const share = (axis: number) => {
    if (axis < 0) return { middle: 0.5, long: 1 }; // a signal's picture is a band
    const { from, to } = seen[axis];
    const size = field.input[axis];
    return { middle: (from + to) / 2 / size, long: (to - from) / size };
  };
  const [down, right] = [share(seen.length - 2), share(seen.length - 1)];
  if (!(down.long > 0 && right.long > 0)) return null;
  return { u: right.middle, v: down.middle, wide: right.long, high: down.long };
}

export function fieldWords(field: Field, place: number[]) {
  if (!["exact", "whole input", "patch"].includes(field.status)) {
    return `${field.status}: ${field.why}`;
  }
  if (field.status === "whole input") return "the whole input";
  const seen = seenFrom(field, place);
  if (!seen) return "too complex to describe";
  if (seen.some(({ from, to }) => from >= to)) return "nothing of the input";
  if (seen.every(({ from, to }, axis) => from === 0 && to === field.input[axis])) {
    return "the whole input";
  }
  const said = seen.map(({ from, to }, axis) => {
    const hidden = field.size ? (field.size[axis] ?? 0) - (to - from) : 0;
    const padding = hidden ? ` and ${hidden} in the padding` : "";
    const units = field.axes[axis] ?? "";
    const stretch = to - from > 1
      ? `${units} ${from}–${to - 1}`
      : `${units.replace(/s$/, "")} ${from}`;
    return `${stretch}${padding}`;
  });
  const flat = field.axes.length === 2
    ? [`${seen.map(({ from, to }) => to - from).join("×")} pixels`]
    : [];
  return [...flat, ...said].join(", ");
}
