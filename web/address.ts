// The view of a page in its address: what a link leads to, and what is there again after a reload.

import { placeIn, positionIn } from "./state.ts";
import type { App } from "./app.ts";
import type { Facts, NetFacts } from "./source.ts";
import type { Choices, Settings } from "./messages.d.ts";

type Known = Pick<Facts, "layers" | "choices"> & { net?: NetFacts };

// A page has the numbers of one value of these; without its network, of those below, too.
const FIXED = new Set(["sample", "shown_after", "place"]); // a link has the position instead
const COMPUTED = new Set(["call", "depth", "shown_run"]);

/**
 * Settings that an address names, of those that the page has; unknown ones are left out. They are
 * the names and values of `Explorer.settings` in Python.
 * @param hash `#layer=conv2&channel=17&target=3&position=5,8`
 * @param settings Where the page opens.
 * @returns Also whether the address names any of a view, and the target: by the number of a class,
 *   or as it is written.
 */
export function viewIn(
  hash: string,
  facts: Known,
  settings: Settings,
): { settings: Settings; target: number | string | null; isLinked: boolean } {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const found: Partial<Settings> & Record<string, unknown> = {};
  for (const [name, text] of given) {
    if (!Object.hasOwn(settings, name) || FIXED.has(name) || (COMPUTED.has(name) && !facts.net)) {
      continue;
    }
    const value = settingOf(text, settings[name as keyof Settings], name);
    const known = facts.choices[name as keyof Choices] as unknown[] | undefined;
    const layer = name !== "layer" || mapOf(facts, String(value));
    if (value !== undefined && layer && (!known || known.includes(value) || name === "cmap")) {
      found[name] = value;
    }
  }
  const position = given.get("position");
  const size = mapOf(facts, found.layer ?? settings.layer);
  if (position !== null && size) {
    const place = isNone(position) ? null : placeIn(numbersIn(position), size);
    if (place !== undefined) found.place = place;
  }
  const text = given.get("target") ?? "";
  const target = /^\d+$/.test(text) ? Number(text) : isNone(text) ? null : text;
  const isLinked = target !== null || Object.keys(found).length > 0;
  return { settings: { ...settings, ...found }, target, isLinked };
}

/** Height and width of a layer's maps. */
const mapOf = (
  facts: Known,
  layer: string,
): number[] | undefined => facts.layers.find((each) => each.name === layer)?.map;

/** Nothing, as links have it and as Python writes it. */
const isNone = (text: string) => text === "" || text === "None";

/** @param text `5,8`, or as Python writes a list. */
const numbersIn = (text: string) =>
  text.replace(/[[\]()\s]/g, "").split(",").map((each) => (each === "" ? NaN : Number(each)));

function settingOf(text: string, example: unknown, name: string) {
  if (typeof example === "boolean") {
    return /^true$/i.test(text) ? true : /^false$/i.test(text) ? false : undefined;
  }
  if (typeof example !== "number") return text;
  const number = Number(text);
  const index = name !== "alpha";
  if (text === "" || !Number.isFinite(number) || number < 0) return undefined;
  return index && !Number.isInteger(number) ? undefined : number;
}

/** What the address of a view ends in: layer and channel, and what is not as the page opens. */
export function hashOf(
  settings: Settings,
  first: Settings,
  target: number | string | null,
  facts: Known,
) {
  const words = new URLSearchParams();
  const size = mapOf(facts, settings.layer) ?? [1, 1];
  for (const [name, value] of Object.entries(settings)) {
    if (
      name !== "layer" && name !== "channel" &&
      JSON.stringify(value) === JSON.stringify(first[name as keyof Settings])
    ) continue;
    if (name === "place") {
      words.set("position", value ? positionIn(value as [number, number], size).join() : "");
    } else words.set(name, String(value));
    if (name === "channel" && target !== null) words.set("target", String(target));
  }
  return `#${String(words).replaceAll("%2C", ",")}`; // of a position, as it is read
}

/**
 * Keep the address at the view, and the view at the address.
 * @param first Where the page opens.
 */
export function keepAddress(app: App, first: Settings) {
  app.source.link = location.protocol !== "about:";
  let timer = 0;
  let own = location.hash;
  const opened = app.facts.target.written;
  const write = () => {
    timer = 0;
    const { chosen, written } = app.facts.target;
    const target = chosen && written !== opened ? written : null;
    const now = hashOf(app.state.settings, first, target, app.facts);
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
    app.goTo(settings);
    if (target !== null) goToTarget(app, target);
  });
  addEventListener("pagehide", () => {
    if (timer) write();
  });
}

export function goToTarget(app: App, target: number | string) {
  const { facts } = app;
  const named = facts.predictions.find((each) => each.name === target);
  const number = named ? named.number : target;
  if (typeof number === "string") {
    if (number !== facts.target.written) app.toWritten(number, false);
    return;
  }
  const known = facts.predictions.some((each) => each.number === number);
  if (number !== facts.target.number && (known || number < facts.classes.count)) {
    app.toTarget(number);
  }
}
