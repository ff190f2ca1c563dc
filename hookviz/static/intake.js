// Files become pixels.

/**
 * A picture's file as pixels, upright, as they are stored: three bytes each, alpha over white.
 * @param {Blob} blob
 * @returns {Promise<import("./resize.js").Rgb>}
 */
export async function pixelsOf(blob) {
  if (!(blob instanceof Blob)) throw new Error("Give a Blob or a File with a picture in it.");
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, {
      colorSpaceConversion: "none",
      premultiplyAlpha: "none",
      imageOrientation: "from-image",
    });
  } catch {
    const name = blob instanceof File && blob.name ? `'${blob.name}'` : "This file";
    throw new Error(`${name} is not a picture that this browser can read: give a PNG, JPEG or WebP.`);
  }
  const { width, height } = bitmap;
  if (Math.max(width, height) > 100 * Math.min(width, height) && Math.max(width, height) > 1000)
    throw new Error(`The picture is ${width}×${height} pixels: crop it first.`);
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("This browser gives no more canvases.");
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return overWhite(context.getImageData(0, 0, width, height));
}

/** @param {ImageData} image */
export function overWhite({ data, width, height }) {
  const pixels = new Uint8Array(3 * width * height);
  for (let i = 0; i < width * height; i++) {
    const alpha = /** @type {number} */ (data[4 * i + 3]) / 255;
    for (let c = 0; c < 3; c++)
      pixels[3 * i + c] = Math.round(255 + alpha * (/** @type {number} */ (data[4 * i + c]) - 255));
  }
  return { pixels, width, height };
}
