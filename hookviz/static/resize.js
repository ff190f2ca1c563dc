// A picture becomes the network's input as in Python: Pillow's resizing to the bit, crop, numbers.

/**
 * @typedef {{pixels: Uint8Array, height: number, width: number}} Rgb Three bytes a pixel.
 * @typedef {{kind: "resize", size: number[], filter: string} | {kind: "crop", size: number[]}
 *   | {kind: "gray"}} Step
 */

const BITS = 22; // of Pillow's fixed-point weights
const ONE = Math.fround(1 / 255); // torchvision multiplies by it

/** @type {Record<string, {support: number, weight: (x: number) => number}>} */
const FILTERS = {
  box: { support: 0.5, weight: (x) => (x > -0.5 && x <= 0.5 ? 1 : 0) },
  bilinear: { support: 1, weight: (x) => Math.max(1 - Math.abs(x), 0) },
  hamming: {
    support: 1,
    weight: (x) => {
      if (x === 0) return 1;
      if (Math.abs(x) >= 1) return 0;
      const turned = Math.PI * x;
      return (Math.sin(turned) / turned) * (0.54 + 0.46 * Math.cos(turned));
    },
  },
  bicubic: {
    support: 2,
    weight: (x) => {
      const far = Math.abs(x);
      if (far < 1) return (1.5 * far - 2.5) * far * far + 1;
      return far < 2 ? (((far - 5) * far + 8) * far - 4) * -0.5 : 0;
    },
  },
  lanczos: {
    support: 3,
    weight: (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0),
  },
};

/** @param {number} x */
function sinc(x) {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

/**
 * For each new pixel where its weights begin, how many there are, and the weights as whole numbers,
 * `taps` places a pixel. Typed arrays: a photograph is resized several times as fast as by lists.
 * @param {number} before
 * @param {number} after
 * @param {string} name
 */
function weightsOf(before, after, name) {
  const { support: own, weight } = FILTERS[name] ?? /** @type {any} */ (FILTERS.bilinear);
  const scale = before / after;
  const wide = Math.max(scale, 1);
  const support = own * wide;
  const taps = Math.ceil(2 * support) + 2;
  const [froms, counts, wholes] = [new Int32Array(after), new Int32Array(after), new Int32Array(after * taps)];
  for (let i = 0; i < after; i++) {
    const centre = (i + 0.5) * scale;
    const from = Math.max(Math.trunc(centre - support + 0.5), 0);
    const to = Math.min(Math.trunc(centre + support + 0.5), before);
    const inverse = 1 / wide;
    const raw = Array.from({ length: to - from }, (_, k) => weight((k + from - centre + 0.5) * inverse));
    let total = 0;
    for (const each of raw) total += each;
    froms[i] = from;
    counts[i] = raw.length;
    for (const [k, each] of raw.entries()) {
      const fixed = (total === 0 ? each : each / total) * 2 ** BITS;
      wholes[i * taps + k] = Math.trunc(fixed < 0 ? fixed - 0.5 : fixed + 0.5);
    }
  }
  return { froms, counts, wholes, taps };
}

/**
 * One dimension is resized; `stride` is from pixel to pixel along it, `lines` where each line begins.
 * @param {Uint8Array} source
 * @param {Uint8Array} made
 * @param {ReturnType<typeof weightsOf>} weights
 * @param {number} count Lines.
 * @param {(line: number) => number} first In the source.
 * @param {(line: number) => number} last In what is made.
 * @param {number} stride In the source.
 * @param {number} step In what is made.
 */
function pass(source, made, { froms, counts, wholes, taps }, count, first, last, stride, step) {
  for (let line = 0; line < count; line++) {
    const start = first(line);
    let to = last(line);
    for (let pixel = 0; pixel < froms.length; pixel++) {
      let sum = 1 << (BITS - 1); // of 32 bits, as Pillow's
      let place = start + /** @type {number} */ (froms[pixel]) * stride;
      const begin = pixel * taps;
      const end = begin + /** @type {number} */ (counts[pixel]);
      for (let k = begin; k < end; k++) {
        sum = (sum + Math.imul(/** @type {number} */ (wholes[k]), /** @type {number} */ (source[place]))) | 0;
        place += stride;
      }
      const value = sum >> BITS;
      made[to] = value < 0 ? 0 : value > 255 ? 255 : value;
      to += step;
    }
  }
}

/**
 * @param {Rgb} picture
 * @param {number} height
 * @param {number} width
 * @param {string} filter
 * @returns {Rgb}
 */
export function resized(picture, height, width, filter) {
  if (filter === "nearest") return nearest(picture, height, width);
  let now = picture;
  if (width !== now.width) {
    const made = new Uint8Array(3 * now.height * width);
    const weights = weightsOf(now.width, width, filter);
    const before = 3 * now.width;
    const at = (/** @type {number} */ size) => (/** @type {number} */ line) => Math.trunc(line / 3) * size + (line % 3);
    pass(now.pixels, made, weights, 3 * now.height, at(before), at(3 * width), 3, 3);
    now = { pixels: made, height: now.height, width };
  }
  if (height !== now.height) {
    const made = new Uint8Array(3 * height * width);
    const weights = weightsOf(now.height, height, filter);
    const row = 3 * width;
    pass(now.pixels, made, weights, row, (line) => line, (line) => line, row, row);
    now = { pixels: made, height, width };
  }
  return now;
}

/**
 * @param {Rgb} picture
 * @param {number} height
 * @param {number} width
 * @returns {Rgb}
 */
function nearest(picture, height, width) {
  const pixels = new Uint8Array(3 * height * width);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const row = Math.trunc(((y + 0.5) * picture.height) / height);
      const column = Math.trunc(((x + 0.5) * picture.width) / width);
      const from = 3 * (row * picture.width + column);
      pixels.set(picture.pixels.subarray(from, from + 3), 3 * (y * width + x));
    }
  return { pixels, height, width };
}

/**
 * The middle of a picture; where it is smaller, black around it.
 * @param {Rgb} picture
 * @param {number} height
 * @param {number} width
 * @returns {Rgb}
 */
export function cropped(picture, height, width) {
  const start = (/** @type {number} */ whole, /** @type {number} */ part) =>
    whole >= part ? evenRound((whole - part) / 2) : -Math.floor((part - whole) / 2);
  const top = start(picture.height, height);
  const left = start(picture.width, width);
  const pixels = new Uint8Array(3 * height * width);
  for (let y = 0; y < height; y++) {
    const row = y + top;
    if (row < 0 || row >= picture.height) continue;
    const first = Math.max(-left, 0);
    const many = Math.min(picture.width - Math.max(left, 0), width - first);
    const from = 3 * (row * picture.width + Math.max(left, 0));
    pixels.set(picture.pixels.subarray(from, from + 3 * many), 3 * (y * width + first));
  }
  return { pixels, height, width };
}

/** @param {number} value As Python rounds: a half to the even number. */
function evenRound(value) {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (low % 2) : Math.round(value);
}

/**
 * The steps of the model's transform, as far as they make another picture.
 * @param {Rgb} picture
 * @param {Step[]} steps
 * @returns {Rgb}
 */
export function prepared(picture, steps) {
  let now = picture;
  for (const step of steps) {
    if (step.kind === "gray") now = grey(now);
    else if (step.kind === "crop") now = cropped(now, sizeAt(step.size, 0), sizeAt(step.size, 1));
    else {
      const [height, width] = sizeAfter(now, step.size);
      if (height !== now.height || width !== now.width)
        now = resized(now, /** @type {number} */ (height), /** @type {number} */ (width), step.filter);
    }
  }
  return now;
}

/** @param {number[]} size @param {number} axis */
const sizeAt = (size, axis) => /** @type {number} */ (size[axis] ?? size[0]);

/**
 * Both sides; or one number for the shorter side, and the other follows.
 * @param {Rgb} picture
 * @param {number[]} size
 */
function sizeAfter({ height, width }, size) {
  if (size.length > 1) return [sizeAt(size, 0), sizeAt(size, 1)];
  const short = sizeAt(size, 0);
  const long = Math.trunc((short * Math.max(height, width)) / Math.min(height, width));
  return height <= width ? [short, long] : [long, short];
}

/** @param {Rgb} picture In Pillow's shades of grey, three times the same byte. */
function grey(picture) {
  const pixels = new Uint8Array(picture.pixels.length);
  for (let i = 0; i < pixels.length; i += 3) {
    const [red, green, blue] = picture.pixels.subarray(i, i + 3);
    const shade = (19595 * (red ?? 0) + 38470 * (green ?? 0) + 7471 * (blue ?? 0) + 32768) >> 16;
    pixels.fill(shade, i, i + 3);
  }
  return { ...picture, pixels };
}

/**
 * The input's numbers: 0 to 1, less the mean, divided by the deviation, channel by channel.
 * @param {Rgb} picture
 * @param {number} channels 1 or 3.
 * @param {number[]} mean Empty without a normalization.
 * @param {number[]} std
 */
export function numbersOf(picture, channels, mean, std) {
  const size = picture.height * picture.width;
  const values = new Float32Array(channels * size);
  for (let channel = 0; channel < channels; channel++) {
    const less = Math.fround(mean[channel] ?? mean[0] ?? 0);
    const by = Math.fround(std[channel] ?? std[0] ?? 1);
    for (let i = 0; i < size; i++) {
      const share = Math.fround(/** @type {number} */ (picture.pixels[3 * i + channel]) * ONE);
      values[channel * size + i] = Math.fround(share - less) / by;
    }
  }
  return values;
}
