// What tells objects apart.

const numbered: WeakMap<object, number> = new WeakMap();
let objects = 0;

/** A number that no other object has: what was drawn of one is not drawn of another. */
export function objectId(object: object) {
  if (!numbered.has(object)) numbered.set(object, objects += 1);
  return numbered.get(object);
}
