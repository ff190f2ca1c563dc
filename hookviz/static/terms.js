// A layer's value as its bias and one product for each input channel and kernel tap, from weights,
// input and geometry alone; the same answer as the kernel's. Python writes the recipes.

/**
 * A branch of what an input channel was made of.
 * @typedef {{layer: string, call: number, channel: number, path: string[], exact: boolean,
 *   at: Array<number | number[]> | null, windows: number[][][] | null, sizes: number[]}} Way
 * @typedef {{layer: string, call: number, sample: number, linear: boolean, groups: number,
 *   transposed: boolean, kernel: number[], stride: number[], padding: number[], dilation: number[],
 *   shape: number[], shift: number[], given: number[], outputs: number, rows: number[] | null,
 *   most: number, sources: Array<[string, number]>, after: any[][], mixed: string,
 *   branches: Array<{from: number, to: number, ways: Way[]}>}} Recipe
 * @typedef {{shape: number[], values: any, approximate?: boolean, scale?: number}} Numbers
 * @typedef {{recipe: Recipe, arrays: Record<string, Numbers>, map?: Numbers | null, scale?: (channel: number) => number}} Held
 * @typedef {{bias: number, kernel: Float64Array, patch: Float64Array, byChannel: Float64Array, bound: number}} Terms
 */

const SHOWN = 8; // largest terms that are told one by one
const NEGLIGIBLE = 1e-6; // of the largest value that a layer returned
const DEEPEST = 3; // layers back, until which a channel is looked at for whether it varies

/**
 * Where a tap of the kernel stands in the layer's input; null where none is met.
 * @param {Recipe} recipe
 * @param {number} axis
 * @param {number} place
 * @param {number} tap
 */
function met(recipe, axis, place, tap) {
  const [stride = 1, padding = 0, dilation = 1] = [recipe.stride[axis], recipe.padding[axis], recipe.dilation[axis]];
  const own = place + (recipe.shift[axis] ?? 0);
  if (!recipe.transposed) return own * stride - padding + tap * dilation;
  const ahead = own + padding - tap * dilation;
  return ahead % stride === 0 ? ahead / stride : null;
}

/**
 * The taps of a kernel, each as a place along every axis.
 * @param {number[]} sizes
 * @returns {number[][]}
 */
function places(sizes) {
  return sizes.reduce(
    (found, size) => found.flatMap((each) => Array.from({ length: size }, (_, n) => [...each, n])),
    /** @type {number[][]} */ ([[]]),
  );
}

/**
 * @param {number[]} index
 * @param {number[]} sizes
 */
function flat(index, sizes) {
  return index.reduce((sum, n, axis) => sum * /** @type {number} */ (sizes[axis]) + n, 0);
}

/**
 * The largest error of a number that was rounded to half precision; 0 if it was not.
 * @param {Held} held
 * @param {string} name
 * @returns {(value: number) => number}
 */
function rounding({ arrays }, name) {
  const numbers = arrays[name];
  if (!numbers?.approximate) return () => 0;
  const least = (numbers.scale ?? 0) * 2 ** -25; // half a step of the smallest numbers
  return (value) => 1.001 * 2 ** -11 * Math.abs(value) + least;
}

/**
 * Take one value apart. For input channels of other groups kernel and patch are zero, in the padding
 * the patch; `bound` is how far the sum may be off because numbers were rounded.
 * @param {Held} held
 * @param {number} channel
 * @param {number[]} position
 * @returns {Terms}
 */
export function termsAt(held, channel, position) {
  const { recipe, arrays } = held;
  const { weight, given, bias } = /** @type {Record<string, Numbers>} */ (arrays);
  const [inputs = 0, ...sizes] = recipe.given;
  const area = sizes.reduce((product, size) => product * size, 1);
  const taps = places(recipe.kernel);
  const row = recipe.rows ? recipe.rows.indexOf(channel) : channel;
  if (row < 0 || row >= (recipe.rows?.length ?? recipe.outputs)) throw new RangeError("these weights are not in this page.");
  const own = inputs / recipe.groups;
  const first = Math.floor(channel / (recipe.outputs / recipe.groups)) * own;
  const kernel = new Float64Array(inputs * taps.length);
  const patch = new Float64Array(inputs * taps.length);
  const byChannel = new Float64Array(inputs);
  const [ofWeight, ofGiven] = [rounding(held, "weight"), rounding(held, "given")];
  const where = taps.map((tap) => {
    if (recipe.linear) return flat(position, sizes);
    const at = tap.map((n, axis) => met(recipe, axis, /** @type {number} */ (position[axis]), n));
    const inside = at.every((n, axis) => n !== null && n >= 0 && n < /** @type {number} */ (sizes[axis]));
    return inside ? flat(/** @type {number[]} */ (at), sizes) : -1;
  });
  let bound = 0;
  for (let c = 0; c < own; c++) {
    for (let t = 0; t < taps.length; t++) {
      const place = (first + c) * taps.length + t;
      const spot = /** @type {number} */ (where[t]);
      const k = /** @type {Numbers} */ (weight).values[(row * own + c) * taps.length + t];
      const p = spot < 0 ? 0 : /** @type {Numbers} */ (given).values[(first + c) * area + spot];
      kernel[place] = k;
      patch[place] = p;
      byChannel[first + c] = /** @type {number} */ (byChannel[first + c]) + k * p;
      const rounded = [ofWeight(k), spot < 0 ? 0 : ofGiven(p)];
      bound += Math.abs(k) * /** @type {number} */ (rounded[1]) + (Math.abs(p) + /** @type {number} */ (rounded[1])) * /** @type {number} */ (rounded[0]);
    }
  }
  return { bias: bias ? bias.values[row] : 0, kernel, patch, byChannel, bound };
}

/**
 * Which tap has the largest product.
 * @param {Recipe} recipe
 * @param {Terms} terms
 * @param {number} channel
 */
function largestTap(recipe, terms, channel) {
  const taps = places(recipe.kernel);
  let best = 0;
  const size = (/** @type {number} */ t) => {
    const place = channel * taps.length + t;
    const product = Math.abs(/** @type {number} */ (terms.kernel[place]) * /** @type {number} */ (terms.patch[place]));
    return Number.isNaN(product) ? Infinity : product;
  };
  for (let t = 1; t < taps.length; t++) if (size(t) > size(best)) best = t;
  return { tap: taps[best] ?? [], patch: /** @type {number} */ (terms.patch[channel * taps.length + best]) };
}

/**
 * The numbers of earlier layers that an input was made of; none in the padding.
 * @param {Recipe} recipe
 * @param {number} channel
 * @param {number[]} spot Where in the layer's input.
 * @param {number} value What stands there.
 * @param {(layer: string, call: number) => Held | null} held
 */
function originsOf(recipe, channel, spot, value, held) {
  const sizes = recipe.given.slice(1);
  if (spot.some((n, axis) => n < 0 || n >= /** @type {number} */ (sizes[axis]))) return [];
  const run = recipe.branches.find(({ from, to }) => from <= channel && channel <= to);
  return (run?.ways ?? []).flatMap((way) => {
    const own = way.channel + channel - /** @type {any} */ (run).from;
    const { position, exact } = came(way, spot, sizes, () => held(way.layer, way.call), own);
    if (position.some((n, axis) => n < 0 || n >= /** @type {number} */ (way.sizes[axis]))) return [];
    const arrived = exact && run?.ways.length === 1 ? String(value) : "";
    return [{ layer: way.layer, call: way.call, channel: own, position, path: way.path, value: arrived, exact }];
  });
}

/**
 * @param {Way} way
 * @param {number[]} spot
 * @param {number[]} sizes
 * @param {() => Held | null} source
 * @param {number} channel
 */
function came({ at, windows, sizes: before, exact }, spot, sizes, source, channel) {
  if (at) return { position: at.map((rule, axis) => (Array.isArray(rule) ? /** @type {number} */ (rule[0]) : /** @type {number} */ (spot[axis]) + rule)), exact };
  const map = windows && source();
  if (map?.map) return { position: largestIn(windows ?? [], spot, /** @type {Held} */ (map), channel), exact: false };
  const about = before.map((size, axis) => Math.floor((((spot[axis] ?? 0) + 0.5) * size) / (sizes[axis] ?? 1)));
  return { position: about, exact: false };
}

/**
 * Of those that were pooled the one of the largest magnitude, as it was when it was pooled.
 * @param {number[][][]} windows
 * @param {number[]} spot
 * @param {Held} held
 * @param {number} channel
 */
function largestIn(windows, spot, held, channel) {
  const ranges = windows.map((axis, n) => {
    const [start = 0, stop = 0, step = 1] = axis[spot[n] ?? 0] ?? [];
    return Array.from({ length: Math.ceil((stop - start) / step) }, (_, i) => start + i * step);
  });
  const sizes = held.recipe.shape;
  const size = sizes.reduce((product, each) => product * each, 1);
  let best = ranges.map((each) => each[0] ?? 0);
  let most = -1;
  for (const choice of places(ranges.map((each) => each.length))) {
    const index = choice.map((n, axis) => /** @type {number} */ (ranges[axis]?.[n]));
    const value = /** @type {Numbers} */ (held.map).values[channel * size + flat(index, sizes)];
    const { values } = onward(held, channel, value);
    const there = Math.abs(values.at(-1)?.[1] ?? value);
    if (there > most) [best, most] = [index, there];
  }
  return best;
}

/** @type {Record<string, (x: number, ...given: any[]) => number>} */
const RULES = {
  keep: (x) => x,
  clamp: (x, low, high) => (Number.isNaN(x) ? x : Math.min(Math.max(x, low ?? -Infinity), high ?? Infinity)),
  leaky: (x, slope) => (x < 0 ? slope * x : x),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  silu: (x) => x / (1 + Math.exp(-x)),
  tanh: (x) => Math.tanh(x),
  hardsigmoid: (x) => Math.min(Math.max(x + 3, 0), 6) / 6,
  hardswish: (x) => (x * Math.min(Math.max(x + 3, 0), 6)) / 6,
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
};

/**
 * The value on its way, as far as the page knows the operations.
 * @param {Held} held
 * @param {number} channel
 * @param {number} value
 */
export function onward({ recipe, arrays }, channel, value) {
  /** @type {Array<[string, number]>} */
  const values = [];
  let [now, own, affine] = [value, channel, 0];
  for (const [name, rule, ...given] of recipe.after) {
    if (rule === "affine") {
      const found = arrays[`affine ${affine}`]?.values;
      affine += 1;
      now = now * found[own] + found[found.length / 2 + own];
    } else if (rule === "join") own += given[0];
    else now = /** @type {any} */ (RULES[rule])(now, ...given);
    values.push([name, now]);
  }
  return { values };
}

/**
 * The error function, by its series or by its continued fraction.
 * @param {number} x
 */
function erf(x) {
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  if (a < 3) {
    let [term, sum] = [a, a];
    for (let n = 1; n < 120; n++) {
      term *= -(a * a) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / ((a + fraction) * Math.sqrt(Math.PI)));
}

/**
 * Do only biases come together in an input?
 * @param {Recipe} recipe
 * @param {Terms} terms
 * @param {number} channel
 * @param {number[]} position
 * @param {(layer: string, call: number) => Held | null} held
 * @param {number} deep How many layers back that is looked for.
 * @returns {boolean}
 */
function isConstant(recipe, terms, channel, position, held, deep) {
  if (deep <= 0) return false;
  const { tap, patch } = largestTap(recipe, terms, channel);
  const spot = tapSpot(recipe, position, tap);
  const found = spot ? originsOf(recipe, channel, spot, patch, held) : [];
  return (
    found.length > 0 &&
    found.every((origin) => {
      const source = held(origin.layer, origin.call);
      if (!source?.arrays.weight || source.recipe.rows) return false;
      const own = termsAt(source, origin.channel, origin.position);
      const felt = [...own.byChannel.keys()].filter((n) => Math.abs(/** @type {number} */ (own.byChannel[n])) > NEGLIGIBLE * source.recipe.most);
      felt.sort((a, b) => Math.abs(/** @type {number} */ (own.byChannel[b])) - Math.abs(/** @type {number} */ (own.byChannel[a])));
      return felt.every((n) => isConstant(source.recipe, own, n, origin.position, held, deep - 1));
    })
  );
}

/**
 * @param {Recipe} recipe
 * @param {number[]} position
 * @param {number[]} tap
 */
function tapSpot(recipe, position, tap) {
  if (recipe.linear) return position;
  const spot = tap.map((n, axis) => met(recipe, axis, /** @type {number} */ (position[axis]), n));
  return spot.includes(null) ? null : /** @type {number[]} */ (spot);
}

/**
 * The chosen place as a position in a layer's map.
 * @param {Recipe} recipe
 * @param {number[]} place Fractions, down and right.
 * @param {number} depth
 */
export function positionOf({ shape }, place, depth) {
  const fractions = [...(shape.length > 2 ? [0] : []), ...place].slice(-shape.length);
  return shape.map((size, axis) => {
    const n = shape.length > 2 && axis === 0 ? depth : Math.floor(/** @type {number} */ (fractions[axis]) * size);
    return Math.min(Math.max(n, 0), size - 1);
  });
}

/**
 * The answer about one value, as the kernel gives it.
 * @param {Held} held
 * @param {number} channel
 * @param {number[]} position
 * @param {(layer: string, call: number) => Held | null} other Another layer of the page, if held.
 * @param {number} [deep] How many layers back a term is looked at for whether only biases lead to it.
 */
export function reason(held, channel, position, other, deep = DEEPEST) {
  const { recipe } = held;
  const terms = termsAt(held, channel, position);
  const { byChannel, kernel, patch, bias } = terms;
  const taps = places(recipe.kernel).length;
  const size = (/** @type {number} */ n) => {
    const each = Math.abs(/** @type {number} */ (byChannel[n]));
    return Number.isNaN(each) ? Infinity : each;
  };
  const rest = [...byChannel.keys()].sort((a, b) => (size(a) === size(b) ? a - b : size(b) > size(a) ? 1 : -1));
  /** @type {number[]} */
  const shown = [];
  /** @type {number[]} */
  const constants = [];
  const some = (/** @type {Float64Array} */ values, /** @type {number} */ n) => values.subarray(n * taps, (n + 1) * taps).some((value) => value !== 0);
  while (rest.length && shown.length < SHOWN && (some(kernel, /** @type {number} */ (rest[0])) || some(patch, /** @type {number} */ (rest[0])))) {
    const next = /** @type {number} */ (rest.shift());
    (isConstant(recipe, terms, next, position, other, deep) ? constants : shown).push(next);
  }
  const sum = (/** @type {Iterable<number>} */ channels) => [...channels].reduce((total, n) => total + /** @type {number} */ (byChannel[n]), 0);
  const added = bias + sum(byChannel.keys());
  const factor = held.scale?.(channel) ?? 1; // of an edit, which comes after the layer
  const known = factor === 1 ? exactAt(held, channel, position) : null;
  const value = known ?? added;
  const part = (/** @type {Float64Array} */ values) => {
    const found = new Float64Array(shown.length * taps);
    shown.forEach((n, place) => found.set(values.subarray(n * taps, (n + 1) * taps), place * taps));
    return { shape: [shown.length, taps], values: found };
  };
  const { values } = onward(held, channel, factor * value);
  if (factor !== 1) values.unshift([`× ${factor}`, factor * value]);
  return {
    layer: recipe.layer,
    call: recipe.call,
    channel,
    position,
    sample: recipe.sample,
    value: String(value),
    bias: String(bias),
    remainder: String(value - added),
    bound: terms.bound,
    rest: String(sum(rest)),
    others: rest.length,
    constant: String(sum(constants)),
    constants: constants.length,
    size: recipe.kernel,
    terms: shown.map((n) => told(held, terms, n, position, other)),
    after: values.map(([name, now]) => [name, String(now)]),
    mixed: recipe.mixed,
    sources: recipe.sources,
    arrays: shown.length ? { kernel: part(kernel), patch: part(patch), ...mapsOf(held, shown) } : {},
  };
}

/**
 * @param {Held} held
 * @param {number} channel
 * @param {number[]} position
 * @returns {number | null}
 */
function exactAt({ recipe, arrays, map }, channel, position) {
  const size = recipe.shape.reduce((product, each) => product * each, 1);
  const row = recipe.rows ? recipe.rows.indexOf(channel) : channel;
  if (arrays.values) return arrays.values.values[row * size + flat(position, recipe.shape)];
  if (!map || map.approximate) return null;
  return map.values[channel * size + flat(position, recipe.shape)] ?? null;
}

/**
 * @param {Held} held
 * @param {number[]} shown
 */
function mapsOf({ recipe, arrays }, shown) {
  const [, height = 1, width = 1] = recipe.given;
  if (recipe.given.length !== 3 || recipe.kernel.length !== 2) return {};
  const area = height * width;
  const values = new Float32Array(shown.length * area);
  shown.forEach((n, place) => values.set(/** @type {Numbers} */ (arrays.given).values.subarray(n * area, (n + 1) * area), place * area));
  return { maps: { shape: [shown.length, height, width], values } };
}

/**
 * @param {Held} held
 * @param {Terms} terms
 * @param {number} channel
 * @param {number[]} position
 * @param {(layer: string, call: number) => Held | null} other
 */
function told({ recipe }, terms, channel, position, other) {
  const { tap, patch } = largestTap(recipe, terms, channel);
  const end = (/** @type {number[]} */ taps) =>
    taps.map((n, axis) => {
      const own = /** @type {number} */ (position[axis]);
      const at = met(recipe, axis, own, n);
      const [stride = 1, padding = 0, dilation = 1] = [recipe.stride[axis], recipe.padding[axis], recipe.dilation[axis]];
      return at ?? Math.floor((own + (recipe.shift[axis] ?? 0) + padding - n * dilation) / stride);
    });
  const spot = tapSpot(recipe, position, tap);
  return {
    channel,
    contribution: String(terms.byChannel[channel]),
    tap,
    window: tap.length ? [end(tap.map(() => 0)), end(recipe.kernel.map((each) => each - 1))] : [],
    origins: spot ? originsOf(recipe, channel, spot, patch, other) : [],
  };
}

const NEEDS = "Why needs the notebook: ";

/**
 * Answer the panel's question from what a page holds; null while that is on its way.
 * @param {any} question
 * @param {any} why The facts: by layer what there is, or why there is none, and the outputs' layer.
 * @param {(layer: string, call: number) => Held | null | undefined} hold Undefined while on its way.
 * @param {number} [deep] See `reason`.
 */
export function answered(question, why, hold, deep = DEEPEST) {
  if (!why || why.none) return { none: `${NEEDS}${why?.none ?? "this page holds no weights."}` };
  let pending = false;
  const other = (/** @type {string} */ layer, /** @type {number} */ call) => {
    const found = why.layers[layer]?.none === undefined && why.layers[layer] ? hold(layer, call) : null;
    if (found === undefined) pending = true;
    return found ?? null;
  };
  const ofOutput = question.output !== undefined;
  const layer = ofOutput ? why.output : question.layer;
  const entry = layer === null ? { none: "the output is not a layer's number." } : why.layers[layer];
  if (!entry || entry.none) return { none: `${NEEDS}${entry?.none ?? "this layer is not in this page."}` };
  const held = other(layer, ofOutput || question.place || question.ask === "weights" ? -1 : question.call);
  if (pending) return null;
  if (!held?.arrays.weight) return { none: `${NEEDS}${held ? "its weights and inputs do not fit into this page." : "this call is not in this page."}` };
  const channel = ofOutput ? question.output : question.channel;
  const given = ofOutput ? [] : question.position;
  const position = given ?? (question.place ? positionOf(held.recipe, question.place, question.depth ?? 0) : null);
  try {
    if (question.ask === "weights") return kernelsOf(held, channel, position);
    const found = reason(held, channel, position, other, deep);
    return pending ? null : found;
  } catch (error) {
    if (error instanceof RangeError) return { none: `${NEEDS}${error.message}` };
    throw error;
  }
}

const MOST = 64; // tiles
const BARS = 24;
const BINS = 40;

/**
 * A layer's kernels as the kernel sends them, see `weights_payload` of hookviz.view.reason.
 * @param {Held} held
 * @param {number} channel
 * @param {number[] | null} position
 */
export function kernelsOf(held, channel, position) {
  const { recipe, arrays } = held;
  const { weight, bias } = arrays;
  const numbers = /** @type {Numbers} */ (weight).values;
  const taps = places(recipe.kernel).length;
  const inputs = /** @type {number} */ (recipe.given[0]) / recipe.groups;
  const rows = recipe.rows ?? Array.from({ length: recipe.outputs }, (_, n) => n);
  const row = rows.indexOf(channel);
  if (row < 0) throw new RangeError("these weights are not in this page.");
  const size = inputs * taps;
  const normOf = (/** @type {number} */ from, /** @type {number} */ count) => Math.sqrt(numbers.subarray(from, from + count).reduce((/** @type {number} */ sum, /** @type {number} */ each) => sum + each * each, 0));
  const norms = rows.map((_, n) => normOf(n * size, size));
  const colour = inputs === 3 && recipe.groups === 1 && recipe.kernel.length === 2;
  const first = Math.floor(channel / (recipe.outputs / recipe.groups)) * inputs;
  const terms = position && !colour ? termsAt(held, channel, position).byChannel.subarray(first, first + inputs) : null;
  const row0 = row * size;
  const linear = !recipe.kernel.length;
  const slices = Array.from({ length: inputs }, (_, n) => terms?.[n] ?? (linear ? numbers[row0 + n] : normOf(row0 + n * taps, taps)));
  const order = falling(colour ? norms : slices).slice(0, linear ? BARS : MOST);
  const part = colour ? size : taps;
  const tiles = new Float32Array(order.length * part);
  order.forEach((n, place) => tiles.set(numbers.subarray((colour ? n * part : row0 + n * part), (colour ? (n + 1) * part : row0 + (n + 1) * part)), place * part));
  const affine = recipe.after[0]?.[1] === "affine" ? arrays["affine 0"]?.values : null;
  const offset = bias ? bias.values[row] : null;
  const folded = affine ? affine[channel] * (offset ?? 0) + affine[affine.length / 2 + channel] : null;
  const words = { colour: `${recipe.layer}: ${recipe.outputs} kernels`, other: `${recipe.layer}, channel ${channel}` };
  return {
    layer: recipe.layer,
    channel,
    words: colour ? words.colour : words.other,
    kind: colour ? "colour" : linear ? "row" : "slices",
    by: terms ? "contribution here" : linear ? "weight" : "norm",
    channels: order.map((n) => (colour ? /** @type {number} */ (rows[n]) : first + n)),
    numbers: order.map((n) => String((colour ? norms : slices)[n])),
    total: colour ? rows.length : inputs,
    size: [Math.max(1, taps / (recipe.kernel.at(-1) ?? 1)), recipe.kernel.at(-1) ?? 1],
    facts: [["norm", String(norms[row])], ...(offset === null ? [] : [["bias", String(offset)]]), ...(folded === null ? [] : [["norm with BatchNorm", String(Math.abs(affine[channel]) * /** @type {number} */ (norms[row]))], ["bias with BatchNorm", String(folded)]])],
    bins: binsOf(numbers, numbers.subarray(row0, row0 + size)),
    arrays: { tiles: { shape: [order.length, part], values: tiles } },
  };
}

/**
 * Indices, the largest size first; NaN counts as the largest.
 * @param {ArrayLike<number>} values
 */
function falling(values) {
  const size = (/** @type {number} */ n) => (Number.isNaN(values[n]) ? Infinity : Math.abs(/** @type {number} */ (values[n])));
  return Array.from(values, (_, n) => n).sort((a, b) => (size(a) === size(b) ? a - b : size(b) > size(a) ? 1 : -1));
}

/**
 * How many weights are in each bin, of all and of one channel.
 * @param {any} all
 * @param {any} own
 */
function binsOf(all, own) {
  let [low, high] = [Infinity, -Infinity];
  for (const each of all)
    if (Number.isFinite(each)) {
      low = Math.min(low, each);
      high = Math.max(high, each);
    }
  if (!(high > low)) [low, high] = [Number.isFinite(low) ? low - 0.5 : 0, Number.isFinite(low) ? low + 0.5 : 1];
  const count = (/** @type {any} */ values) => {
    const bins = new Array(BINS).fill(0);
    for (const each of values) if (Number.isFinite(each)) bins[Math.min(Math.floor(((each - low) / (high - low)) * BINS), BINS - 1)] += 1;
    return bins;
  };
  return { low: String(low), high: String(high), all: count(all), own: count(own) };
}
