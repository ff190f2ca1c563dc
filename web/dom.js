// Elements of the page; names and numbers become text, never markup.

/**
 * Make an element.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number | boolean>} [attributes] True is an empty attribute, false none.
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== false) made.setAttribute(name, value === true ? "" : String(value));
  made.append(...children);
  return made;
}

/**
 * A value that must be there.
 * @template T
 * @param {T} value
 * @returns {NonNullable<T>}
 */
export function sure(value) {
  if (value === null || value === undefined) throw new TypeError("hookviz: a value is missing");
  return value;
}

/**
 * What a script element of the page holds, as JSON.
 * @param {string} id
 */
export function readJson(id) {
  return JSON.parse(document.getElementById(id)?.textContent ?? "null");
}

/**
 * Set a text only where it changes: what stays the same costs no layout.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Set an attribute only where it changes; null takes it away.
 * @param {Element} element
 * @param {string} name
 * @param {string | number | boolean | null} value
 */
export function setAttribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/**
 * Where in an element the pointer is, 0 to 1 across and down.
 * @param {MouseEvent} event
 * @param {Element} element
 */
export function shareOf(event, element) {
  const box = element.getBoundingClientRect();
  return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
}

/**
 * Give a file to the browser, which saves it.
 * @param {Blob} blob
 * @param {string} name
 */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * Show or hide.
 * @param {HTMLElement} element
 * @param {boolean} shown
 */
export function visible(element, shown) {
  element.hidden = !shown;
}

/**
 * A menu; `onChange` gets the chosen value.
 * @param {string} label
 * @param {Array<[string, string]>} options Values and what they are called.
 * @param {(value: string) => void} onChange
 * @returns {HTMLSelectElement}
 */
export function menu(label, options, onChange) {
  const made = el("select", { "aria-label": label, title: label });
  for (const [value, name] of options) made.append(el("option", { value }, name));
  made.addEventListener("change", () => onChange(made.value));
  return made;
}

/**
 * Bring a menu to a value; one that it did not know is added.
 * @param {HTMLSelectElement} made
 * @param {string} value
 */
export function choose(made, value) {
  if (made.value === value) return;
  if (![...made.options].some((option) => option.value === value))
    made.append(el("option", { value }, value));
  made.value = value;
}
