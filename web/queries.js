// Attention in a page from any query, cut out of the heads' matrices.

import { Layer } from "./layer.js";
import { layerArrays } from "./measures.js";

/**
 * @typedef {{grid: [number, number], before: number, first: number, query: number, heads: number,
 *   words: string[]}} Queries Rows and columns of the patches, the keys and the queries before them,
 *   the query that the page's maps are of, and the words for the mean and for each such query.
 */

const MEAN = -1;

/**
 * The query that a place chooses: that of its patch, or without one the class token, or the mean.
 * @param {Queries} queries
 * @param {[number, number] | null} place
 */
export function queryAt({ grid: [rows, columns], first }, place) {
  if (!place) return first ? 0 : MEAN;
  const row = Math.min(Math.floor(place[0] * rows), rows - 1);
  return first + row * columns + Math.min(Math.floor(place[1] * columns), columns - 1);
}

/**
 * @param {Queries} queries
 * @param {number} query
 */
function wordsOf({ grid, first, words }, query) {
  if (query < first) return words[query + 1] ?? "";
  const patch = query - first;
  return `patch (${Math.floor(patch / grid[1])}, ${patch % grid[1]})`;
}

/**
 * One row of each of some matrices, or the mean over their rows.
 * @param {Float32Array} matrices
 * @param {number} count
 * @param {number} keys
 * @param {number} query
 */
function matrixRows(matrices, count, keys, query) {
  const size = matrices.length / count;
  const found = new Float32Array(count * keys);
  const rows = query === MEAN ? Array.from({ length: size / keys }, (_, row) => row) : [query];
  for (let head = 0; head < count; head++)
    for (let key = 0; key < keys; key++) {
      let sum = 0;
      for (const row of rows) sum += /** @type {number} */ (matrices[head * size + row * keys + key]);
      found[head * keys + key] = sum / rows.length;
    }
  return found;
}

/**
 * The layer as seen from the query of a place; itself, if it has no others.
 * @param {Layer} layer
 * @param {[number, number] | null} place
 * @returns {Layer}
 */
export function fromQuery(layer, place) {
  /** @type {Queries | undefined} */
  const queries = layer.header.queries;
  const matrices = layer.arrays.queries;
  if (!queries || !matrices) return layer;
  const query = queryAt(queries, place);
  if (query === queries.query) return layer;
  return layer.once(`query ${query}`, () => {
    const { heads, before, grid } = queries;
    const keys = /** @type {number} */ (matrices.shape[2]);
    const rows = matrixRows(matrices.values, /** @type {number} */ (matrices.shape[0]), keys, query);
    const cut = (/** @type {number} */ from, /** @type {number} */ begin, /** @type {number} */ end) => {
      const values = new Float32Array(heads * (end - begin));
      for (let head = 0; head < heads; head++)
        values.set(rows.subarray((from + head) * keys + begin, (from + head) * keys + end), head * (end - begin));
      return values;
    };
    const graded = matrices.shape[0] === 2 * heads;
    const gradients = graded ? cut(heads, before, keys) : null;
    const [height, width] = grid;
    const made = layerArrays(cut(0, before, keys), gradients, [heads, height, width], layer.orders.slice(1));
    made.maps.approximate = matrices.approximate;
    if (before) made.beside = { shape: [heads, before], values: cut(0, 0, before) };
    const header = { ...layer.header, query: wordsOf(queries, query) };
    return new Layer(header, made, layer.orders, layer.network);
  });
}
