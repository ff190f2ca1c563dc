// What is said of each channel, from its values: as hookviz/view/layer.py does it in Python.

import type { Arrays, Numbers } from "./layer.ts";

/**
 * A row for each of least, most, mean, share of zeros, norm, NaNs and infinities, of each channel.
 * @param values All maps, one behind the other.
 */
export function measured(values: Float32Array, count: number): Numbers {
  const size = values.length / count;
  const rows = new Float32Array(7 * count);
  for (let channel = 0; channel < count; channel++) {
    let [least, most, sum, squares, zeros, nans, infs] = [Infinity, -Infinity, 0, 0, 0, 0, 0];
    for (let i = channel * size; i < (channel + 1) * size; i++) {
      const value = values[i];
      if (Number.isFinite(value)) {
        if (value < least) least = value;
        if (value > most) most = value;
        sum += value;
        squares += value * value;
        if (value === 0) zeros++;
      } else if (Number.isNaN(value)) nans++;
      else infs++;
    }
    const known = size - nans - infs;
    const found = known
      ? [least, most, sum / known, zeros / size, Math.sqrt(squares), nans, infs]
      : [NaN, NaN, NaN, 0, NaN, nans, infs];
    found.forEach((each, row) => {
      rows[row * count + channel] = each;
    });
  }
  return { shape: [7, count], values: rows };
}

/** The 1st and the 99th percentile of each map's finite values, linear between two values. */
function percentilesOf(values: Float32Array, count: number): [Float64Array, Float64Array] {
  const size = values.length / count;
  const [low, high] = [new Float64Array(count), new Float64Array(count)];
  for (let channel = 0; channel < count; channel++) {
    const own = values.slice(channel * size, (channel + 1) * size).filter(Number.isFinite).sort();
    const at = (share: number) => {
      const place = share * (own.length - 1);
      const first = own[Math.floor(place)] ?? 0;
      return first + (place - Math.floor(place)) * ((own[Math.ceil(place)] ?? 0) - first);
    };
    low[channel] = at(0.01);
    high[channel] = at(0.99);
  }
  return [low, high];
}

/**
 * How flat each gradient is, as `flatness` of hookviz/view/view.py: 0 it is not, 1 zero everywhere,
 * 2 the same everywhere, 3 one value or zero, 4 zero in all channels.
 */
function flatnessOf(values: Float32Array, count: number) {
  const size = values.length / count;
  const found = new Uint8Array(count);
  for (let channel = 0; channel < count && size > 1; channel++) {
    const own = values.subarray(channel * size, (channel + 1) * size);
    const one = own.find((value) => value !== 0) ?? 0;
    let others = 0;
    for (const value of own) {
      if (value === one && one !== 0) others++;
      else if (value !== 0) {
        others = -1;
        break;
      }
    }
    if (one === 0) found[channel] = 1;
    else if (others === size) found[channel] = 2;
    else if (others > 1) found[channel] = 3;
  }
  if (size > 1 && found.every((kind) => kind === 1)) found.fill(4);
  return found;
}

/** The mean of each channel. */
function meansOf(values: Float32Array, count: number) {
  const size = values.length / count;
  return Float32Array.from({ length: count }, (_, channel) => {
    let sum = 0;
    for (let i = channel * size; i < (channel + 1) * size; i++) sum += values[i];
    return sum / size;
  });
}

/** Channels by a number of each, the largest first; equals stay in order, NaN goes last. */
export function descending(keys: ArrayLike<number>) {
  const key = (channel: number) => {
    const value = keys[channel];
    return Number.isNaN(value) ? -Infinity : value;
  };
  const less = (a: number, b: number) => (key(a) === key(b) ? a - b : key(b) > key(a) ? 1 : -1);
  return Uint32Array.from([...Array(keys.length).keys()].sort(less));
}

/**
 * All that `Layer` knows of maps and gradients; what is seldom asked for is found when it is.
 * @param orders All but the first.
 */
export function layerArrays(
  maps: Float32Array,
  gradients: Float32Array | null,
  shape: [number, number, number],
  orders: string[],
) {
  const count = shape[0];
  const numbers = measured(maps, count);
  const slopes = gradients && measured(gradients, count);
  const weights = gradients && meansOf(gradients, count);
  const row = (of: Numbers, place: number) =>
    of.values.subarray(place * count, (place + 1) * count);
  const keys: Record<string, () => ArrayLike<number>> = {
    mean: () => row(numbers, 2),
    max: () => row(numbers, 1),
    zeros: () => row(numbers, 3),
    gradient: () => (slopes ? row(slopes, 4) : new Float32Array(count)),
    "gradcam weight": () => weights ?? new Float32Array(count),
  };
  const own = gradients && slopes && {
    gradients: { shape, values: gradients },
    gradient_numbers: slopes,
    flat: { shape: [count], values: flatnessOf(gradients, count) },
  };
  const ordersOf = () => {
    const found = orders.map((name) => [...descending(keys[name]?.() ?? new Float32Array(count))]);
    return { shape: [orders.length, count], values: Uint32Array.from(found.flat()) };
  };
  const percentiles = (of: Float32Array) => {
    const [low, high] = percentilesOf(of, count);
    return { shape: [2, count], values: Float64Array.from([...low, ...high]) };
  };
  const ordered = once(ordersOf);
  const ends = once(() => percentiles(maps));
  const slopeRange = once(() => gradients && percentiles(gradients));
  const size = maps.length / count;
  return {
    maps: { shape, values: maps },
    numbers,
    ...own,
    get orders() {
      return ordered();
    },
    get "maps percentiles"() {
      return ends();
    },
    get "gradients percentiles"() {
      return slopeRange();
    },
    // Of one channel at a time: a new picture shows one.
    slopeEnds: (channel: number) =>
      gradients &&
      percentilesOf(gradients.subarray(channel * size, (channel + 1) * size), 1).flatMap((
        end,
      ) => [...end]),
  } as Arrays;
}

function once<T>(make: () => T) {
  let made: T | null = null;
  return () => made ??= make();
}
