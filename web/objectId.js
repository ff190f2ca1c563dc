// What tells objects apart.

/** @type {WeakMap<object, number>} */
const numbered = new WeakMap();
let objects = 0;

/**
 * A number that no other object has: what was drawn of one is not drawn of another.
 * @param {object} object
 */
export function objectId(object) {
  if (!numbered.has(object)) numbered.set(object, (objects += 1));
  return numbered.get(object);
}
