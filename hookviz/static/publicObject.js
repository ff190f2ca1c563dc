// `window.hookviz`: the page for scripts. What it takes and returns is in docs/howto/network-page.md.

import { pixelsOf } from "./intake.js";
import { probabilitiesOf } from "./network.js";

/** @typedef {{shape: number[], data: Float32Array}} Values */

/**
 * @param {any} facts
 * @param {Promise<import("./network.js").NetworkSource>} source
 */
export function publicObject(facts, source) {
  /** @type {Promise<unknown>} One question after the other. */
  let last = Promise.resolve();

  /**
   * @template T
   * @param {(source: import("./network.js").NetworkSource) => Promise<T>} act
   * @returns {Promise<T>}
   */
  const inTurn = (act) => {
    const done = last.then(async () => act(await source));
    last = done.catch(() => undefined);
    return done;
  };

  /**
   * @param {import("./network.js").NetworkSource} from
   * @param {string} output
   * @param {any} [feeds]
   * @returns {Promise<Values>}
   */
  const outputOf = async (from, output, feeds) => {
    const { edited } = from.answers;
    const known = feeds ? undefined : edited.known.get(output);
    const found = known ?? (await from.runner.run(feeds ?? edited.feeds, [output]))[output];
    if (!found) throw new Error(`The network returned no ${output}.`);
    if (!feeds) edited.known.set(output, found);
    return { shape: [...found.shape], data: found.values.slice() };
  };

  return Object.freeze({
    layers: Object.freeze(facts.net.layers.map((/** @type {any} */ each) => each.name)),
    ready: source.then(() => undefined),

    /** The tensor that the network gets. */
    input: () =>
      inTurn(async (from) => ({ shape: [...from.input.shape], data: from.input.values.slice() })),

    /** @param {string} layer */
    activation: (layer) => inTurn(async (from) => outputOf(from, `activation:${from.call(layer).name}`)),

    /**
     * @param {string} layer
     * @param {number | string | null} [target] A class; left out, the one that the page shows.
     */
    gradient: (layer, target) =>
      inTurn(async (from) => {
        const { name, graded } = from.call(layer);
        if (!graded) throw new Error(`No gradient reaches ${name}. ${facts.net.reason}`.trim());
        if (target === undefined || target === null) return outputOf(from, `gradient:${name}`);
        const feeds = from.feeds(from.input, from.edits, classNumber(facts, target));
        return outputOf(from, `gradient:${name}`, feeds);
      }),

    /** @param {Blob} blob A picture's file. */
    setInput: (blob) =>
      inTurn(async (from) => {
        from.show(await pixelsOf(blob));
        await outputOf(from, "logits").catch(ignoreMissing);
      }),

    predictions: () =>
      inTurn(async (from) => {
        const { classes } = facts;
        if (!facts.net.outputs.includes("logits")) return [];
        const { data } = await outputOf(from, "logits");
        const shares = probabilitiesOf(data);
        return [...data]
          .map((logit, index) => ({
            index,
            name: classes.names[index] ?? `class ${index}`,
            logit,
            probability: /** @type {number} */ (shares[index]),
          }))
          .sort((a, b) => b.logit - a.logit || a.index - b.index);
      }),

    /**
     * @param {string} layer
     * @param {number} channel
     * @param {number} factor 0 silences it, 1 is as before.
     */
    scale: (layer, channel, factor) =>
      inTurn(async (from) => {
        const { layer: base, channels } = from.call(layer);
        if (!(Number.isInteger(channel) && channel >= 0 && channel < channels))
          throw new Error(`Channel ${channel} is not one of 0 to ${channels - 1} of ${base}.`);
        if (typeof factor !== "number" || !Number.isFinite(factor))
          throw new Error(`The factor ${factor} is not a number.`);
        from.scale(base, channel, factor);
        from.changed();
        await outputOf(from, "logits").catch(ignoreMissing);
      }),

    /** Undo all factors; the picture stays. */
    reset: () =>
      inTurn(async (from) => {
        from.edits = [];
        from.changed();
        await outputOf(from, "logits").catch(ignoreMissing);
      }),
  });
}

/** A network that is no classifier has no logits to wait for. @param {Error} error */
function ignoreMissing(error) {
  if (!/logits/.test(error.message)) throw error;
}

/**
 * @param {any} facts
 * @param {number | string} target
 */
function classNumber(facts, target) {
  const count = facts.net.inputs.classes?.[1] ?? 0;
  const number = typeof target === "string" ? facts.classes.names.indexOf(target) : target;
  if (!Number.isInteger(number) || number < 0 || number >= count)
    throw new Error(`${JSON.stringify(target)} is not a class of this network: its classes are 0 to ${count - 1}.`);
  return number;
}
