// How many tiles fit beside and below each other.

export interface Grid {
  columns: number;
  rows: number;
  width: number;
  height: number;
}

export const LEAST_TILE = 36; // a tile's side, in pixels of the page
const MOST_TILE = 300;
export const SPACE = 4;

/**
 * The largest tiles with which all channels fit into a room; or the least size, if they do not.
 * @param ratio Height by width of a tile.
 */
export function layout(count: number, ratio: number, width: number, height: number): Grid {
  const larger = ratio < 0.5 ? 3 : 1; // flat tiles may be wide
  const across = (columns: number) => (width + SPACE) / columns - SPACE - 0.01;
  const down = (rows: number) => ((height + SPACE) / rows - SPACE) / ratio;
  const grids = Array.from({ length: count }, (_, n) => {
    const [columns, rows] = [n + 1, Math.ceil(count / (n + 1))];
    const side = Math.min(across(columns), down(rows), larger * MOST_TILE);
    return { columns, rows, width: side, height: side * ratio };
  });
  const best = grids.reduce((one, other) => other.width < one.width ? one : other);
  if (best.width >= larger * LEAST_TILE) return best;
  const columns = Math.max(1, Math.floor((width + SPACE) / (larger * LEAST_TILE + SPACE)));
  const side = across(columns);
  const rows = Math.max(1, Math.floor((height + SPACE) / (side * ratio + SPACE)));
  return { columns, rows, width: side, height: side * ratio };
}
