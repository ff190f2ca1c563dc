// Where the labels of a detector's boxes stand.

/** A letter's width and a line's height, as fractions of the picture's usual side. */
export const [LETTER, LINE] = [0.022, 0.055];

interface Labelled {
  left: number;
  top: number;
  bottom: number;
  /** Of the label; 0 without one. */
  width: number;
}

/** Which labels stand at the bottom of their boxes: at the top they would cover a better box's. */
export function lowLabels(boxes: Labelled[]): boolean[] {
  const taken: Labelled[] = [];
  return boxes.map((box) => {
    const isFree = (top: number) =>
      taken.every((label) =>
        Math.abs(label.top - top) >= LINE || label.left + label.width <= box.left ||
        box.left + box.width <= label.left
      );
    const bottom = box.bottom - LINE;
    const isLow = box.width > 0 && !isFree(box.top) && isFree(bottom);
    if (box.width) taken.push({ ...box, top: isLow ? bottom : box.top });
    return isLow;
  });
}
