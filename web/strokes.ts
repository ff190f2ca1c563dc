// Strokes on the input: which pixels a brush covers, and an input that is painted or erased there.

import type { Input } from "./network.ts";

/**
 * Visit every pixel whose middle is in a disc.
 * @param u The disc's middle, from the left, 0 to 1.
 * @param v From the top.
 * @param radius As a share of the width.
 */
export function visitDisc(
  width: number,
  height: number,
  u: number,
  v: number,
  radius: number,
  visit: (pixel: number) => void,
) {
  const [x, y, far] = [u * width, v * height, radius * width];
  for (let row = Math.max(Math.floor(y - far), 0); row < Math.min(y + far + 1, height); row++) {
    for (
      let column = Math.max(Math.floor(x - far), 0);
      column < Math.min(x + far + 1, width);
      column++
    ) {
      if ((row + 0.5 - y) ** 2 + (column + 0.5 - x) ** 2 <= far ** 2) visit(row * width + column);
    }
  }
}

/**
 * An input whose covered pixels have the mean of each channel, or are restored.
 * @param covered One number for each pixel of the input, 0 or 1.
 * @param erase Restore them.
 */
export function withStroke(input: Input, covered: Uint8Array, erase: boolean): Input {
  const unpainted = input.unpainted ?? input;
  const [, channels = 0, height = 0, width = 0] = input.shape;
  const values = input.values.slice();
  for (let c = 0; c < channels; c++) {
    fill(values, unpainted.values, covered, erase, c * height * width, 1);
  }
  const picture = input.picture!;
  const pixels = picture.pixels.slice();
  const seen = resampled(covered, width, height, picture.width, picture.height);
  for (let c = 0; c < 3; c++) fill(pixels, unpainted.picture!.pixels, seen, erase, c, 4);
  return { values, shape: input.shape, picture: { ...picture, pixels }, unpainted };
}

/**
 * Fill or restore the covered numbers of one channel.
 * @param first Where the channel begins.
 * @param step From one of its numbers to the next.
 */
function fill(
  values: Float32Array | Uint8ClampedArray,
  unpainted: Float32Array | Uint8ClampedArray,
  covered: Uint8Array,
  erase: boolean,
  first: number,
  step: number,
) {
  let sum = 0;
  for (let i = 0; i < covered.length; i++) sum += unpainted[first + step * i];
  for (let i = 0; i < covered.length; i++) {
    const at = first + step * i;
    if (covered[i]) values[at] = erase ? unpainted[at] : sum / covered.length;
  }
}

/** A mask in another size, by the nearest pixel: the shown picture may be larger than the input. */
function resampled(
  covered: Uint8Array,
  width: number,
  height: number,
  newWidth: number,
  newHeight: number,
) {
  return Uint8Array.from({ length: newWidth * newHeight }, (_, pixel) => {
    const row = Math.floor(((Math.floor(pixel / newWidth) + 0.5) * height) / newHeight);
    const column = Math.floor((((pixel % newWidth) + 0.5) * width) / newWidth);
    return covered[row * width + column];
  });
}
