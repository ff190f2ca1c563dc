// Strokes on the input: which pixels a brush covers, and an input that is painted or erased there.

/**
 * Visit every pixel whose middle is in a disc.
 * @param {number} width
 * @param {number} height
 * @param {number} u The disc's middle, from the left, 0 to 1.
 * @param {number} v From the top.
 * @param {number} radius As a share of the width.
 * @param {(pixel: number) => void} visit
 */
export function visitDisc(width, height, u, v, radius, visit) {
  const [x, y, far] = [u * width, v * height, radius * width];
  for (let row = Math.max(Math.floor(y - far), 0); row < Math.min(y + far + 1, height); row++)
    for (let column = Math.max(Math.floor(x - far), 0); column < Math.min(x + far + 1, width); column++)
      if ((row + 0.5 - y) ** 2 + (column + 0.5 - x) ** 2 <= far ** 2) visit(row * width + column);
}

/**
 * An input whose covered pixels have the mean of each channel, or are restored.
 * @param {import("./network.js").Input} input
 * @param {Uint8Array} covered One number for each pixel of the input, 0 or 1.
 * @param {boolean} erase Restore them.
 * @returns {import("./network.js").Input}
 */
export function withStroke(input, covered, erase) {
  const unpainted = input.unpainted ?? input;
  const [, channels = 0, height = 0, width = 0] = input.shape;
  const values = input.values.slice();
  for (let c = 0; c < channels; c++) fill(values, unpainted.values, covered, erase, c * height * width, 1);
  const { picture } = input;
  const pixels = picture.pixels.slice();
  const seen = resampled(covered, width, height, picture.width, picture.height);
  for (let c = 0; c < 3; c++) fill(pixels, unpainted.picture.pixels, seen, erase, c, 4);
  return { values, shape: input.shape, picture: { ...picture, pixels }, unpainted };
}

/**
 * Fill or restore the covered numbers of one channel.
 * @param {Float32Array | Uint8ClampedArray} values
 * @param {Float32Array | Uint8ClampedArray} unpainted
 * @param {Uint8Array} covered
 * @param {boolean} erase
 * @param {number} first Where the channel begins.
 * @param {number} step From one of its numbers to the next.
 */
function fill(values, unpainted, covered, erase, first, step) {
  let sum = 0;
  for (let i = 0; i < covered.length; i++) sum += /** @type {number} */ (unpainted[first + step * i]);
  for (let i = 0; i < covered.length; i++) {
    const at = first + step * i;
    if (covered[i]) values[at] = erase ? /** @type {number} */ (unpainted[at]) : sum / covered.length;
  }
}

/**
 * A mask in another size, by the nearest pixel: the shown picture may be larger than the input.
 * @param {Uint8Array} covered
 * @param {number} width
 * @param {number} height
 * @param {number} newWidth
 * @param {number} newHeight
 */
function resampled(covered, width, height, newWidth, newHeight) {
  return Uint8Array.from({ length: newWidth * newHeight }, (_, pixel) => {
    const row = Math.floor(((Math.floor(pixel / newWidth) + 0.5) * height) / newHeight);
    const column = Math.floor((((pixel % newWidth) + 0.5) * width) / newWidth);
    return /** @type {number} */ (covered[row * width + column]);
  });
}
