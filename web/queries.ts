// Attention in a page from any query, cut out of the heads' matrices.

import { Layer } from "./layer.js";
import type { Numeric } from "./layer.js";
import { layerArrays } from "./measures.js";

/** Rows and columns of the patches, the keys and the queries before them, the query that the page's maps are of, and the words for the mean and for each such query. */
export interface Queries {
  grid: [number, number];
  before: number;
  first: number;
  query: number;
  heads: number;
  words: string[];
}

const MEAN = -1;

/**
 * The query that a place chooses: that of its patch, or without one the class token, or the mean.
 */
export function queryAt({ grid: [rows, columns], first }: Queries, place: [number, number] | null) {
  if (!place) return first ? 0 : MEAN;
  const row = Math.min(Math.floor(place[0] * rows), rows - 1);
  return first + row * columns + Math.min(Math.floor(place[1] * columns), columns - 1);
}

function wordsOf({ grid, first, words }: Queries, query: number) {
  if (query < first) return words[query + 1] ?? "";
  const patch = query - first;
  return `patch (${Math.floor(patch / grid[1])}, ${patch % grid[1]})`;
}

/** One row of each of some matrices, or the mean over their rows. */
function matrixRows(matrices: Numeric, count: number, keys: number, query: number) {
  const size = matrices.length / count;
  const found = new Float32Array(count * keys);
  const rows = query === MEAN ? Array.from({ length: size / keys }, (_, row) => row) : [query];
  for (let head = 0; head < count; head++) {
    for (let key = 0; key < keys; key++) {
      let sum = 0;
      for (const row of rows) sum += matrices[head * size + row * keys + key];
      found[head * keys + key] = sum / rows.length;
    }
  }
  return found;
}

/** The layer as seen from the query of a place; itself, if it has no others. */
export function fromQuery(layer: Layer, place: [number, number] | null): Layer {
  const queries: Queries | undefined = layer.header.queries;
  const matrices = layer.arrays.queries;
  if (!queries || !matrices) return layer;
  const query = queryAt(queries, place);
  if (query === queries.query) return layer;
  return layer.once(`query ${query}`, () => {
    const { heads, before, grid } = queries;
    const keys = matrices.shape[2];
    const rows = matrixRows(matrices.values, matrices.shape[0], keys, query);
    const cut = (from: number, begin: number, end: number) => {
      const values = new Float32Array(heads * (end - begin));
      for (let head = 0; head < heads; head++) {
        values.set(
          rows.subarray((from + head) * keys + begin, (from + head) * keys + end),
          head * (end - begin),
        );
      }
      return values;
    };
    const graded = matrices.shape[0] === 2 * heads;
    const gradients = graded ? cut(heads, before, keys) : null;
    const [height, width] = grid;
    const made = layerArrays(
      cut(0, before, keys),
      gradients,
      [heads, height, width],
      layer.orders.slice(1),
    );
    made.maps.approximate = matrices.approximate;
    if (before) made.beside = { shape: [heads, before], values: cut(0, 0, before) };
    const header = { ...layer.header, query: wordsOf(queries, query) };
    return new Layer(header, made, layer.orders, layer.network);
  });
}
