// A picture becomes the network's input as in Python: Pillow's resizing to the bit, crop, numbers.

/** Three bytes a pixel. */
export interface Rgb {
  pixels: Uint8Array;
  height: number;
  width: number;
}
export type Step = { kind: "resize"; size: number[]; filter: string } | {
  kind: "crop";
  size: number[];
} | { kind: "gray" };

const BITS = 22; // of Pillow's fixed-point weights
const ONE = Math.fround(1 / 255); // torchvision multiplies by it

const FILTERS: Record<string, { support: number; weight: (x: number) => number }> = {
  bilinear: { support: 1, weight: (x) => Math.max(1 - Math.abs(x), 0) },
  bicubic: {
    support: 2,
    weight: (x) => {
      const far = Math.abs(x);
      if (far < 1) return (1.5 * far - 2.5) * far * far + 1;
      return far < 2 ? (((far - 5) * far + 8) * far - 4) * -0.5 : 0;
    },
  },
};

/** A part of a side: pixels from `first` on. */
export interface Part {
  first: number;
  count: number;
}

/**
 * For each new pixel of a part where its weights begin, how many there are, and the weights as whole
 * numbers, `taps` places a pixel. Typed arrays: a photograph is resized several times as fast as by
 * lists.
 */
function weightsOf(before: number, after: number, name: string, { first, count }: Part) {
  const { support: own, weight } = FILTERS[name];
  const scale = before / after;
  const wide = Math.max(scale, 1);
  const support = own * wide;
  const taps = Math.ceil(2 * support) + 2;
  const [froms, counts, wholes] = [
    new Int32Array(count),
    new Int32Array(count),
    new Int32Array(count * taps),
  ];
  const raw = new Float64Array(taps);
  const inverse = 1 / wide;
  for (let i = 0; i < count; i++) {
    const centre = (first + i + 0.5) * scale;
    const from = Math.max(Math.trunc(centre - support + 0.5), 0);
    const many = Math.min(Math.trunc(centre + support + 0.5), before) - from;
    let total = 0;
    for (let k = 0; k < many; k++) {
      const each = weight((k + from - centre + 0.5) * inverse);
      raw[k] = each;
      total += each;
    }
    froms[i] = from;
    counts[i] = many;
    for (let k = 0; k < many; k++) {
      const each = raw[k];
      const fixed = (total === 0 ? each : each / total) * 2 ** BITS;
      wholes[i * taps + k] = Math.trunc(fixed < 0 ? fixed - 0.5 : fixed + 0.5);
    }
  }
  return { froms, counts, wholes, taps };
}

/**
 * One side is resized, and the picture turned on its side: the same again does the other side.
 * @param lines Those along the side that are needed.
 */
function pass(
  { pixels, width }: Rgb,
  { froms, counts, wholes, taps }: ReturnType<typeof weightsOf>,
  lines: Part,
): Rgb {
  const made = new Uint8Array(3 * lines.count * froms.length);
  for (let line = 0; line < lines.count; line++) {
    for (let pixel = 0; pixel < froms.length; pixel++) {
      let red = 1 << (BITS - 1); // of 32 bits, as Pillow's
      let [green, blue] = [red, red];
      let at = 3 * ((lines.first + line) * width + froms[pixel]);
      const begin = pixel * taps;
      const end = begin + counts[pixel];
      for (let k = begin; k < end; k++) {
        const weight = wholes[k];
        red = (red + Math.imul(weight, pixels[at])) | 0;
        green = (green + Math.imul(weight, pixels[at + 1])) | 0;
        blue = (blue + Math.imul(weight, pixels[at + 2])) | 0;
        at += 3;
      }
      const place = 3 * (pixel * lines.count + line);
      made[place] = byteOf(red);
      made[place + 1] = byteOf(green);
      made[place + 2] = byteOf(blue);
    }
  }
  return { pixels: made, height: froms.length, width: lines.count };
}

function byteOf(sum: number) {
  const value = sum >> BITS;
  return value < 0 ? 0 : value > 255 ? 255 : value;
}

/**
 * A part of what a picture becomes: only that is computed.
 * @param height Of all.
 */
function resized(
  picture: Rgb,
  height: number,
  width: number,
  filter: string,
  rows: Part,
  columns: Part,
): Rgb {
  const right = weightsOf(picture.width, width, filter, columns);
  const down = weightsOf(picture.height, height, filter, rows);
  const first = down.froms[0];
  const count = down.froms[rows.count - 1] + down.counts[rows.count - 1] - first;
  const wide = pass(picture, right, { first, count });
  const froms = down.froms.map((from) => from - first);
  return pass(wide, { ...down, froms }, { first: 0, count: columns.count });
}

/** The middle of a side; all of it, if it is not longer. */
function middleOf(whole: number, part: number): Part {
  return whole > part
    ? { first: evenRound((whole - part) / 2), count: part }
    : { first: 0, count: whole };
}

/** The middle of a picture; where it is smaller, black around it. */
function cropped(picture: Rgb, height: number, width: number): Rgb {
  const { pixels } = picture;
  if (picture.height === height && picture.width === width) return picture;
  const [rows, columns] = [middleOf(picture.height, height), middleOf(picture.width, width)];
  const made = new Uint8Array(3 * height * width);
  const top = Math.floor((height - rows.count) / 2);
  const left = Math.floor((width - columns.count) / 2);
  for (let y = 0; y < rows.count; y++) {
    const from = 3 * ((y + rows.first) * picture.width + columns.first);
    made.set(pixels.subarray(from, from + 3 * columns.count), 3 * ((y + top) * width + left));
  }
  return { pixels: made, height, width };
}

/** @param value As Python rounds: a half to the even number. */
function evenRound(value: number) {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (low % 2) : Math.round(value);
}

/** The steps of the model's transform, as far as they make another picture. */
export function prepared(picture: Rgb, steps: Step[]): Rgb {
  let now = picture;
  for (const [number, step] of steps.entries()) {
    if (step.kind === "gray") now = grey(now);
    else if (step.kind === "crop") now = cropped(now, sizeAt(step.size, 0), sizeAt(step.size, 1));
    else {
      const [height, width] = sizeAfter(now, step.size);
      if (height === now.height && width === now.width) continue;
      const next = steps[number + 1];
      const [rows, columns] = [height, width].map((side, axis) =>
        middleOf(side, next?.kind === "crop" ? sizeAt(next.size, axis) : side)
      );
      now = resized(now, height, width, step.filter, rows, columns);
    }
  }
  return now;
}

const sizeAt = (size: number[], axis: number) => size[axis] ?? size[0];

/** Both sides; or one number for the shorter side, and the other follows. */
function sizeAfter({ height, width }: Rgb, size: number[]) {
  if (size.length > 1) return [sizeAt(size, 0), sizeAt(size, 1)];
  const short = sizeAt(size, 0);
  const long = Math.trunc((short * Math.max(height, width)) / Math.min(height, width));
  return height <= width ? [short, long] : [long, short];
}

/** @param picture In Pillow's shades of grey, three times the same byte. */
function grey(picture: Rgb) {
  const pixels = new Uint8Array(picture.pixels.length);
  for (let i = 0; i < pixels.length; i += 3) {
    const [red, green, blue] = picture.pixels.subarray(i, i + 3);
    const shade = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16;
    pixels.fill(shade, i, i + 3);
  }
  return { ...picture, pixels };
}

/**
 * The input's numbers: 0 to 1, less the mean, divided by the deviation, channel by channel.
 * @param channels 1 or 3.
 * @param mean Empty without a normalization.
 */
export function numbersOf(picture: Rgb, channels: number, mean: number[], std: number[]) {
  const size = picture.height * picture.width;
  const values = new Float32Array(channels * size);
  for (let channel = 0; channel < channels; channel++) {
    const less = Math.fround(mean[channel] ?? mean[0] ?? 0);
    const by = Math.fround(std[channel] ?? std[0] ?? 1);
    for (let i = 0; i < size; i++) {
      const share = Math.fround(picture.pixels[3 * i + channel] * ONE);
      values[channel * size + i] = Math.fround(share - less) / by;
    }
  }
  return values;
}
