// The input's pixels, as a canvas takes them.

/**
 * RGB bytes as a picture.
 * @param said Its height and width, and what is said of it.
 */
export function pictureOf(rgb: Uint8Array, { height, width, size, words, fed }: any) {
  const pixels = new Uint8ClampedArray(4 * height * width);
  for (let from = 0, to = 0; to < pixels.length; from += 3, to += 4) {
    for (let c = 0; c < 3; c++) pixels[to + c] = rgb[from + c];
    pixels[to + 3] = 255;
  }
  return { pixels, height, width, size, words, fed };
}

/** The numbers that the network got, from the least, black, to the largest. */
export function asFed({ pixels, height, width, fed }: any) {
  const made = new Uint8ClampedArray(pixels);
  for (let i = 0; i < made.length; i++) {
    const colour = i % 4;
    if (colour < 3) made[i] = 255 * ((pixels[i] / 255) * fed.gain[colour] + fed.shift[colour]);
  }
  return { pixels: made, height, width };
}
