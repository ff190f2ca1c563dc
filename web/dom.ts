// Elements of the page; names and numbers become text, never markup.

/**
 * Make an element.
 * @param attributes True is an empty attribute, false none.
 */
export function el<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Record<string, string | number | boolean> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/** A value that must be there. */
export function sure<T>(value: T): NonNullable<T> {
  if (value === null || value === undefined) throw new TypeError("hookviz: a value is missing");
  return value;
}

/** What a script element of the page holds, as JSON. */
export function readJson(id: string) {
  return JSON.parse(document.getElementById(id)?.textContent ?? "null");
}

/** Where in an element the pointer is, 0 to 1 across and down. */
export function shareOf(event: MouseEvent, element: Element) {
  const box = element.getBoundingClientRect();
  return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
}

/** Act after the next frame is on the screen: work before that would delay it. */
export function afterPaint(act: () => void) {
  requestAnimationFrame(() => setTimeout(act));
}

/** Give a file to the browser, which saves it. */
export function download(blob: Blob, name: string) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
