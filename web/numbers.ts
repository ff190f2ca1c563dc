// Numbers as people read them, with a real minus sign.

/** Three significant digits. */
export function short(value: number | null | undefined) {
  if (value === null || value === undefined || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const plain = size >= 1e-4 && size < 1e6;
  const text = plain ? String(Number(value.toPrecision(3))) : value.toExponential(2);
  return signed(text);
}

/** The shortest text that parses to this number, in single precision unless `double` is set. */
export function shortest(value: number, double: boolean = false) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : short(value);
  if (double) return signed(String(value));
  for (let digits = 1; digits < 10; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return signed(String(Number(text)));
  }
  return signed(String(value));
}

/** @param share 0 to 1. */
export function percent(share: number) {
  return `${(100 * share).toFixed(1)} %`;
}

export function times(sizes: number[]) {
  return sizes.join("×");
}

/** Height and width of a map, or a 1d layer's length. */
export function mapSize(size: number[]) {
  return (size[0] ?? 0) > 1 ? times(size) : String(size[1]);
}

function signed(text: string) {
  return text.replace("-", "−").replace("e−", "e-").replace("e-", "e−");
}

/**
 * A name cut in the middle, where its end tells most.
 * @param most Characters.
 */
export function middle(name: string, most: number) {
  if (name.length <= most) return name;
  const head = Math.floor((most - 1) / 3);
  return `${name.slice(0, head)}…${name.slice(name.length - (most - 1 - head))}`;
}

/**
 * The end of a layer's name, after the number of the block that is cut off: "…3.attn.heads".
 * @param most Characters.
 */
export function ending(name: string, most: number) {
  if (name.length <= most) return name;
  const parts = name.split(".");
  let first = parts.length - 1;
  while (first && parts.slice(first - 1).join(".").length + 4 <= most) first--;
  const number = parts.slice(0, first).join(".").match(/\d+(?=\D*$)/)?.[0];
  return middle(`…${number ? `${number}.` : ""}${parts.slice(first).join(".")}`, most);
}

/** The first of several things in words, whose numbers may have commas: of "3×3, 9,248 parameters". */
export const firstOf = (words: string) => words.split(", ")[0];
