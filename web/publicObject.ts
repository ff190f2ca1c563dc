// `window.hookviz`: the page for scripts. What it takes and returns is in docs/howto/network-page.md.

import { CAMS } from "./cams.ts";
import { className, probabilitiesOf } from "./classes.ts";
import { pixelsOf } from "./intake.tsx";
import { OCCLUSION } from "./running.ts";
import { readTarget } from "./targets.ts";
import type { NetworkSource } from "./network.ts";
import type { Heat } from "./source.ts";
import type { PageFacts } from "./network.ts";
import type { Tensors } from "./runner.ts";

export interface Values {
  shape: number[];
  data: Float32Array;
}

export function publicObject(facts: PageFacts, source: Promise<NetworkSource>) {
  /** One question after the other. */
  let last: Promise<unknown> = Promise.resolve();

  const inTurn = <T>(act: (source: NetworkSource) => Promise<T>): Promise<T> => {
    const done = last.then(async () => act(await source));
    last = done.catch(() => undefined);
    return done;
  };

  const outputOf = async (
    from: NetworkSource,
    output: string,
    feeds?: Tensors,
  ): Promise<Values> => {
    const { edited } = from.answers;
    if (!feeds) await from.until(edited, [output]);
    const found = feeds
      ? (await from.runner.run(feeds, [output]))[output]
      : edited.known.get(output);
    if (!found) throw new Error(`The network returned no ${output}.`);
    return { shape: [...found.shape], data: found.values.slice() };
  };

  /** Wait until all answers of the current state are computed. */
  const settled = async (from: NetworkSource) => {
    if (!facts.net.outputs.includes("logits")) return;
    for (const each of [from.answers.edited, from.answers.original]) {
      await from.until(each, ["logits"]);
    }
  };

  const ready = source.then(() => undefined);
  ready.catch(() => undefined); // the page says it

  return Object.freeze({
    layers: Object.freeze(facts.net.layers.map((each) => each.name)),
    ready,

    /** The tensor that the network gets. */
    input: () =>
      inTurn(async (from) => ({ shape: [...from.input.shape], data: from.input.values.slice() })),

    activation: (layer: string) =>
      inTurn(async (from) => outputOf(from, `activation:${from.call(layer).name}`)),

    /** @param target A class, or values of the output; left out, the one that the page shows. */
    gradient: (layer: string, target?: number | string | null) =>
      inTurn(async (from) => {
        const own = target === undefined || target === null;
        const written = !own && /^(hookviz\.)?output\b| - /.test(String(target));
        const goal = written ? readTarget(String(target), from.facts) : null;
        const call = from.call(layer);
        if (!from.graded(call, own ? from.goal : goal)) {
          throw new Error(`No gradient reaches ${call.name}. ${facts.net.reason}`.trim());
        }
        if (own) return outputOf(from, `gradient:${call.name}`);
        const feeds = from.feeds(from.input, from.edits, goal ?? classNumber(facts, target));
        return outputOf(from, `gradient:${call.name}`, feeds);
      }),

    /** @param method As in the page's menu. */
    heatmap: (layer: string, method: string = "gradcam") =>
      inTurn(async (from) => {
        const call = from.call(layer);
        const known = facts.choices.heatmap.filter((each) => each in CAMS || each === OCCLUSION);
        if (!known.includes(method)) {
          throw new Error(
            `No heatmap of this page is called '${method}'; there are: ${known.join(", ")}.`,
          );
        }
        await settled(from);
        await outputOf(from, `activation:${call.name}`);
        if (from.graded(call)) await outputOf(from, `gradient:${call.name}`);
        const { edited } = from.answers;
        const at = {
          layer: call.layer,
          call: call.call,
          depth: 0,
          heatmap: method,
          shown_run: "edited",
          script: true,
        };
        const found: Heat | null = method === OCCLUSION && !from.refusal(at)
          ? await from.running.alone(edited)
          : from.heat(at);
        if (!found?.values) {
          throw new Error(`${method} of ${call.name}: ${found?.none ?? "missing"}.`);
        }
        return { shape: [...found.shape], data: found.values.slice() };
      }),

    /** @param blob A picture's file. */
    setInput: (blob: Blob) =>
      inTurn(async (from) => {
        await from.read(pixelsOf(blob));
        await settled(from);
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
            name: className(classes, index),
            logit,
            probability: shares[index],
          }))
          .sort((a, b) => b.logit - a.logit || a.index - b.index);
      }),

    /** @param factor 0 silences it, 1 is as before. */
    scale: (layer: string, channel: number, factor: number) =>
      inTurn(async (from) => {
        const { layer: base, channels } = from.call(layer);
        if (!(Number.isInteger(channel) && channel >= 0 && channel < channels)) {
          throw new Error(`Channel ${channel} is not one of 0 to ${channels - 1} of ${base}.`);
        }
        if (typeof factor !== "number" || !Number.isFinite(factor)) {
          throw new Error(`The factor ${factor} is not a number.`);
        }
        from.scale(base, channel, factor);
        from.changed();
        await settled(from);
      }),

    /** Undo all factors; the picture stays. */
    reset: () =>
      inTurn(async (from) => {
        from.edits = [];
        from.changed();
        await settled(from);
      }),
  });
}

function classNumber(facts: PageFacts, target: number | string) {
  const count = facts.net.inputs.classes?.[1] ?? 0;
  const number = typeof target === "string" ? facts.classes.names.indexOf(target) : target;
  if (!Number.isInteger(number) || number < 0 || number >= count) {
    throw new Error(
      `${JSON.stringify(target)} is not a class of this network: its classes are 0 to ${
        count - 1
      }.`,
    );
  }
  return number;
}
