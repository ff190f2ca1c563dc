// Heatmaps from maps and gradients of one layer: the methods of hookviz/attribution/cam.py.

/** All channels one behind the other, and how many of how many places. */
interface Pair {
  maps: ArrayLike<number>;
  gradients: ArrayLike<number>;
  count: number;
  size: number;
}
type Cam = (pair: Pair) => Float32Array;

/** The sum over the channels of their maps, each with a weight. */
function weighted({ maps, count, size }: Pair, weight: (channel: number) => number) {
  const sums = new Float64Array(size);
  for (let channel = 0; channel < count; channel++) {
    const factor = weight(channel);
    for (let i = 0; i < size; i++) sums[i] += factor * maps[channel * size + i];
  }
  return sums;
}

/** The sum over the channels of what stands at each place. */
function placewise(
  { maps, gradients, count, size }: Pair,
  term: (map: number, gradient: number) => number,
) {
  const sums = new Float64Array(size);
  for (let channel = 0; channel < count; channel++) {
    for (let i = 0; i < size; i++) {
      const place = channel * size + i;
      sums[i] += term(maps[place], gradients[place]);
    }
  }
  return sums;
}

/** The sum over the places of one channel. */
function along(
  { maps, gradients, size }: Pair,
  channel: number,
  term: (map: number, gradient: number) => number,
) {
  let sum = 0;
  for (let i = channel * size; i < (channel + 1) * size; i++) {
    sum += term(maps[i], gradients[i]);
  }
  return sum;
}

/** @param value Its positive part; NaN stays. */
const positive = (value: number) => (value < 0 ? 0 : value);

export const CAMS: Record<string, Cam> = {
  gradcam: (pair) =>
    Float32Array.from(
      weighted(pair, (channel) => along(pair, channel, (_, slope) => slope) / pair.size),
      positive,
    ),
  "gradcam++": (pair) =>
    Float32Array.from(
      weighted(pair, (channel) => {
        const total = along(pair, channel, (map) => map);
        return along(pair, channel, (_, slope) => {
          const fraction = 1 / (2 + total * slope);
          return slope > 0 && Number.isFinite(fraction) ? fraction * slope : 0;
        });
      }),
      positive,
    ),
  hirescam: (pair) => Float32Array.from(placewise(pair, (map, slope) => map * slope)),
  xgradcam: (pair) =>
    Float32Array.from(
      weighted(pair, (channel) => {
        const total = along(pair, channel, (map) => map);
        return total === 0 ? 0 : along(pair, channel, (map, slope) => map * slope) / total;
      }),
      positive,
    ),
  layercam: (pair) =>
    Float32Array.from(placewise(pair, (map, slope) => positive(slope) * map), positive),
  eigencam: ({ maps, count, size }) => firstComponent(maps, count, size),
  eigengradcam: ({ maps, gradients, count, size }) =>
    firstComponent(Float32Array.from(maps, (map, i) => map * gradients[i]), count, size),
  gradient: (pair) =>
    Float32Array.from(placewise(pair, (_, slope) => slope), (sum) => sum / pair.count),
  activation: (pair) => Float32Array.from(placewise(pair, (map) => map), (sum) => sum / pair.count),
};

/** Those that need no gradient. */
export const WITHOUT_GRADIENT = new Set(["eigencam", "activation"]);

/**
 * Each place's channels, centred, on the direction of largest variance, which is found by powers
 * of the covariance; the value of largest magnitude is positive.
 */
function firstComponent(values: ArrayLike<number>, count: number, size: number) {
  const centred = Float64Array.from(values);
  let most = 0;
  for (let channel = 0; channel < count; channel++) {
    let mean = 0;
    for (let i = 0; i < size; i++) mean += centred[channel * size + i] / size;
    for (let i = channel * size; i < (channel + 1) * size; i++) {
      centred[i] -= mean;
      most = Math.max(most, Math.abs(centred[i]));
    }
  }
  if (!Number.isFinite(most)) return new Float32Array(size).fill(NaN);
  if (most === 0) return new Float32Array(size);
  let places = new Float64Array(size);
  // Begin with the channel that varies most: it is seldom without a part of the direction.
  let best = -1;
  for (let channel = 0; channel < count; channel++) {
    let sum = 0;
    for (let i = channel * size; i < (channel + 1) * size; i++) sum += centred[i] ** 2;
    if (sum > best) {
      best = sum;
      places = centred.slice(channel * size, (channel + 1) * size);
    }
  }
  const direction = new Float64Array(count);
  for (let round = 0; round < 500; round++) {
    let norm = 0;
    for (let channel = 0; channel < count; channel++) {
      let sum = 0;
      for (let i = 0; i < size; i++) sum += centred[channel * size + i] * places[i];
      direction[channel] = sum;
      norm += sum * sum;
    }
    norm = Math.sqrt(norm) || 1;
    const next = new Float64Array(size);
    for (let channel = 0; channel < count; channel++) {
      const factor = direction[channel] / norm;
      for (let i = 0; i < size; i++) {
        next[i] += factor * centred[channel * size + i];
      }
    }
    let moved = 0;
    let peak = 0;
    for (let i = 0; i < size; i++) {
      moved = Math.max(moved, Math.abs(next[i] - places[i]));
      peak = Math.max(peak, Math.abs(next[i]));
    }
    places = next;
    if (moved <= 1e-7 * peak) break;
  }
  let peak = 0;
  for (const value of places) if (Math.abs(value) > Math.abs(peak)) peak = value;
  return Float32Array.from(places, (value) => (peak < 0 ? -value : value));
}
