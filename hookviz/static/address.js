// The view of a page in its address: what a link leads to, and what is there again after a reload.

/** @typedef {import("./app.js").App} App */

/**
 * Settings that an address names, of those that the page has; unknown ones are left out.
 * @param {string} hash `#layer=conv2&channel=17&target=3&place=0.35,0.3`
 * @param {any} facts
 * @param {any} settings Where the page opens.
 * @returns {{settings: any, target: number | string | null}} A target by the number of a class, or as it is written.
 */
export function viewIn(hash, facts, settings) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {any} */
  const found = {};
  for (const [name, text] of given) {
    if (!(name in settings)) continue;
    const value = settingOf(text, settings[name], name);
    const known = facts.choices[name];
    const layer = name !== "layer" || facts.layers.some((/** @type {any} */ each) => each.name === value);
    if (value !== undefined && layer && (!known || known.includes(value) || name === "cmap")) found[name] = value;
  }
  const text = given.get("target") ?? "";
  const target = /^\d+$/.test(text) ? Number(text) : text || null;
  return { settings: { ...settings, ...found }, target };
}

/**
 * @param {string} text
 * @param {any} example
 * @param {string} name
 */
function settingOf(text, example, name) {
  if (name === "place") {
    const place = text.split(",").map(Number);
    const inside = place.length === 2 && place.every((each) => each >= 0 && each <= 1);
    return text === "" ? null : inside ? place : undefined;
  }
  if (typeof example === "boolean") return text === "true" ? true : text === "false" ? false : undefined;
  if (typeof example !== "number") return text;
  const number = Number(text);
  const index = name !== "alpha";
  if (text === "" || !Number.isFinite(number) || number < 0) return undefined;
  return index && !Number.isInteger(number) ? undefined : number;
}

/**
 * What the address of a view ends in: layer and channel, and what is not as the page opens.
 * @param {any} settings
 * @param {any} first
 * @param {number | string | null} target
 */
export function hashOf(settings, first, target) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(settings)) {
    const own = name === "layer" || name === "channel";
    if (own || JSON.stringify(value) !== JSON.stringify(first[name])) words.set(name, value === null ? "" : String(value));
    if (name === "channel" && target !== null) words.set("target", String(target));
  }
  return `#${words}`;
}

/**
 * Keep the address at the view, and the view at the address.
 * @param {App} app
 * @param {any} first Where the page opens.
 */
export function keepAddress(app, first) {
  let timer = 0;
  let own = location.hash;
  const write = () => {
    timer = 0;
    const now = hashOf(app.state.settings, first, targetIn(app));
    if (now === own) return;
    own = now;
    try {
      history.replaceState(null, "", own);
    } catch {
      // a frame without an address of its own
    }
  };
  const later = () => {
    if (!timer) timer = setTimeout(write, 300); // browsers allow a few a second
  };
  app.state.onChange(later);
  app.source.listeners.add(later);
  addEventListener("hashchange", () => {
    if (location.hash === own) return;
    const { settings, target } = viewIn(location.hash, app.facts, first);
    app.state.set(settings);
    if (target !== null) goToTarget(app, target);
  });
  addEventListener("pagehide", () => {
    if (timer) write();
  });
}

/**
 * The target that was chosen here.
 * @param {App} app
 */
function targetIn({ source, at }) {
  return source.goal?.written ?? at.targetClass;
}

/**
 * @param {App} app
 * @param {number | string} target
 */
export function goToTarget(app, target) {
  const { facts } = app;
  if (typeof target === "string") {
    if (target !== facts.target.written) app.toWritten(target, false);
    return;
  }
  const known = facts.predictions.some((/** @type {any} */ each) => each.number === target);
  if (target !== facts.target.number && (known || target < facts.classes.count)) app.toTarget(target);
}

/** @param {App} app */
export function linkOf(app, /** @type {any} */ first) {
  return location.href.replace(/#.*$/, "") + hashOf(app.state.settings, first, targetIn(app));
}
