// What a page's network runs backward from: a target, as it is written in Python, as weights of its outputs.

import { className } from "./classes.ts";
import type { PageFacts } from "./network.ts";

/** `weights` by input of the graph; `number` of a single class. */
export interface Goal {
  written: string;
  name: string;
  number: number | null;
  weights: Record<string, Float32Array>;
}
interface Term {
  input: string;
  places: number[];
  each: number;
  said: string;
  name: string;
}

/**
 * @param text `output["out"][0, 15, 48, 26]`, a class by number or name, or a difference of such.
 */
export function readTarget(text: string, facts: PageFacts): Goal {
  const { inputs } = facts.net;
  const whole = text.replaceAll("hookviz.output", "output").trim();
  const single = classTerm(whole, facts);
  const terms = single ? [single] : whole.split(/ [-−] /).map((each) => termOf(each.trim(), facts));
  const weights: Record<string, Float32Array> = {};
  for (const [n, { input, places, each }] of terms.entries()) {
    weights[input] ??= new Float32Array(
      inputs[input].reduce((product, size) => product * size, 1),
    );
    const own = weights[input];
    const share = n === 0 ? each : input === "classes" ? -each / (terms.length - 1) : -each; // as a tuple of classes
    for (const place of places) own[place] = share + own[place];
  }
  const join = (which: "said" | "name") => terms.map((term) => term[which]).join(" - ");
  const number = terms.length === 1 && terms[0]?.input === "classes" ? Number(terms[0].said) : null;
  return { written: join("said"), name: join("name"), number, weights };
}

function classTerm(text: string, { net, classes }: PageFacts): Term | null {
  const count = net.inputs.classes?.[1] ?? 0;
  const number = /^\d+$/.test(text) ? Number(text) : numberOf(text.toLowerCase(), classes.names);
  if (number < 0 || number >= count) return null;
  return {
    input: "classes",
    places: [number],
    each: 1,
    said: String(number),
    name: className(classes, number),
  };
}

/** @param names Several classes of one name have their numbers in theirs: "crane (134)". */
function numberOf(text: string, names: string[]) {
  const lower = names.map((name) => name.toLowerCase());
  const alike = [...lower.keys()].filter((number) => lower[number] === `${text} (${number})`);
  if (alike.length > 1) {
    throw new Error(
      `${alike.length} classes are called ${text}, ${alike.join(", ")}: give the number of one.`,
    );
  }
  return lower.indexOf(text);
}

function termOf(text: string, facts: PageFacts): Term {
  const found = classTerm(text, facts);
  if (found) return found;
  const { inputs, answers } = facts.net;
  const held: number[] = [...answers.keys()].filter((n) =>
    inputs[`weights:${n}`] &&
    /^[[.]/.test(text.startsWith(answers[n]) ? text.slice(answers[n].length) : "")
  );
  const which = held.sort((a, b) => answers[b].length - answers[a].length)[0];
  const parts = which === undefined
    ? null
    : /^(?:\[([^\]]*)\])?(?:\.(mean|sum)\(\))?$/.exec(text.slice(answers[which].length));
  if (!parts) throw new Error(`${text} is not a target of this page${knownTargets(facts)}`);
  const input = `weights:${which}`;
  const [, indices = "", reduced] = parts;
  const places = placesIn(indices, inputs[input], facts.answer?.sample ?? 0, text);
  if (!reduced && places.length > 1) {
    throw new Error(
      `${text} is ${places.length} numbers, not one: index it, or end in .sum() or .mean().`,
    );
  }
  return {
    input,
    places,
    each: reduced === "mean" ? 1 / places.length : 1,
    said: text,
    name: text,
  };
}

function knownTargets({ net, classes }: PageFacts) {
  const names = net.answers.filter((_, n) => net.inputs[`weights:${n}`]);
  const ways = [
    ...(net.inputs.classes
      ? [`write a class by name or by number, 0 to ${classes.count - 1}`]
      : []),
    ...(names.length
      ? [`index ${names.join(", ")}, and end in .sum() or .mean() if it is not one number`]
      : []),
  ];
  return `: ${ways.join("; or ")}.`;
}

/** Where the values stand that indices choose, as in Python; only the shown sample is here. */
function placesIn(text: string, shape: number[], sample: number, said: string) {
  const indices = text.trim() ? text.split(",").map((each) => each.trim()) : [];
  if (indices.length > shape.length) {
    throw new Error(
      `${said} has ${indices.length} indices, and the output ${shape.length} dimensions.`,
    );
  }
  let places = [0];
  for (const [axis, size] of shape.entries()) {
    const index = indices[axis] ?? ":";
    if (axis === 0 && index !== String(sample)) {
      throw new Error(
        `${said}: this page has sample ${sample} alone, so the first index is ${sample}.`,
      );
    }
    const own = axis === 0 ? [0] : chosenOf(index, size, said);
    places = places.flatMap((place) => own.map((each) => place * size + each));
  }
  return places;
}

function chosenOf(index: string, size: number, said: string) {
  const slice = /^(-?\d*):(-?\d*)$/.exec(index);
  if (!slice && !/^-?\d+$/.test(index)) {
    throw new Error(`${said}: '${index}' is neither a number nor a slice.`);
  }
  const from = (given: string | undefined, none: number) => {
    const number = given ? Number(given) : none;
    return number < 0 ? number + size : number;
  };
  if (slice) {
    const [start, end] = [Math.max(from(slice[1], 0), 0), Math.min(from(slice[2], size), size)];
    if (start >= end) throw new Error(`${said}: '${index}' chooses none of ${size}.`);
    return Array.from({ length: end - start }, (_, n) => start + n);
  }
  const number = from(index, 0);
  if (number < 0 || number >= size) {
    throw new Error(`${said}: index ${index} is outside 0 to ${size - 1}.`);
  }
  return [number];
}
