// Numbers as people read them, with a real minus sign.

/**
 * Three significant digits.
 * @param {number | null | undefined} value
 */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const plain = size >= 1e-4 && size < 1e6;
  const text = plain ? String(Number(value.toPrecision(3))) : value.toExponential(2);
  return signed(text);
}

/**
 * The shortest text that is this very number: in single precision, if it is one.
 * @param {number} value
 * @param {boolean} [double]
 */
export function shortest(value, double = false) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : short(value);
  if (double) return signed(String(value));
  for (let digits = 1; digits < 10; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return signed(String(Number(text)));
  }
  return signed(String(value));
}

/** @param {number} share 0 to 1. */
export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** @param {number[]} sizes */
export function times(sizes) {
  return sizes.join("×");
}

/**
 * Height and width of a map, or a 1d layer's length.
 * @param {number[]} size
 */
export function mapSize(size) {
  return (size[0] ?? 0) > 1 ? times(size) : String(size[1]);
}

/** @param {string} text */
function signed(text) {
  return text.replace("-", "−").replace("e−", "e-").replace("e-", "e−");
}

/**
 * A name cut in the middle, where its end tells most.
 * @param {string} name
 * @param {number} most Characters.
 */
export function middle(name, most) {
  if (name.length <= most) return name;
  const head = Math.floor((most - 1) / 3);
  return `${name.slice(0, head)}…${name.slice(name.length - (most - 1 - head))}`;
}
