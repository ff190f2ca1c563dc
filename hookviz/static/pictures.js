// The input's pixels, as a canvas takes them.

/**
 * RGB bytes as a picture.
 * @param {Uint8Array} rgb
 * @param {any} said Its height and width, and what is said of it.
 */
export function pictureOf(rgb, { height, width, size, words }) {
  const pixels = new Uint8ClampedArray(4 * height * width);
  for (let i = 0; i < height * width; i++) {
    pixels.set(rgb.subarray(3 * i, 3 * i + 3), 4 * i);
    pixels[4 * i + 3] = 255;
  }
  return { pixels, height, width, size, words };
}
