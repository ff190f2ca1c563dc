// The input's pixels, as a canvas takes them.

import type { PictureHeader } from "./messages.d.ts";
import type { Picture } from "./source.ts";

/**
 * RGB bytes as a picture.
 * @param said Its height and width, and what is said of it.
 */
export function pictureOf(rgb: ArrayLike<number>, header: PictureHeader): Picture {
  const [height, width] = [header.height!, header.width!];
  const pixels = new Uint8ClampedArray(4 * height * width);
  for (let from = 0, to = 0; to < pixels.length; from += 3, to += 4) {
    for (let c = 0; c < 3; c++) pixels[to + c] = rgb[from + c];
    pixels[to + 3] = 255;
  }
  return { ...header, pixels, height, width };
}

/** The numbers that the network got, from the least, black, to the largest. */
export function asFed({ pixels, height, width, fed }: Picture): Picture {
  if (!fed) throw new TypeError("hookviz: this picture is not the network's input");
  const made = new Uint8ClampedArray(pixels);
  for (let i = 0; i < made.length; i++) {
    const colour = i % 4;
    if (colour < 3) made[i] = 255 * ((pixels[i] / 255) * fed.gain[colour] + fed.shift[colour]);
  }
  return { pixels: made, height, width };
}
