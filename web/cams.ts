// Heatmaps from maps and gradients of one layer: methods of hookviz/attribution/cam.py.

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
  gradient: (pair) =>
    Float32Array.from(placewise(pair, (_, slope) => slope), (sum) => sum / pair.count),
  activation: (pair) => Float32Array.from(placewise(pair, (map) => map), (sum) => sum / pair.count),
};
