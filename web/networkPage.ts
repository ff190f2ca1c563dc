// The entry of a page that runs its network: the same face, whose numbers are computed here.

import { block, fileIn, inflated, tellSize } from "./blocks.ts";
import { el, readJson, sure } from "./dom.ts";
import { Intake } from "./intake.tsx";
import { NetworkSource } from "./network.ts";
import { openView } from "./opening.ts";
import { pictureOf } from "./pictures.ts";
import { publicObject } from "./publicObject.ts";
import { numbersOf } from "./resize.ts";
import { Runner } from "./runner.ts";
import type { Block } from "./blocks.ts";
import type { PictureHeader, Settings } from "./messages.d.ts";
import type { Input, PageFacts } from "./network.ts";
import type { NetworkGraph, Refused } from "./source.ts";
import type { HeldAnswers } from "./walk.ts";

/** Unpack model and runtime, and start the worker. */
async function started(facts: PageFacts) {
  const program = await fileIn("program");
  const text = new TextDecoder().decode(await inflated(program, [program.length]));
  const runner = new Runner(text, await fileIn("runtime"), fileIn("model"), facts.net);
  const inputs = facts.net.pictures.map((id) =>
    block<PictureHeader>(id).then((found) => inputIn(sure(found), facts))
  );
  const [batch, why, map] = await Promise.all([
    Promise.all(inputs),
    block<HeldAnswers["header"]>("why").then(sure),
    block<NetworkGraph | Refused>("map").then(sure),
  ]);
  await runner.ready;
  const own = sure(batch[facts.net.pictures.indexOf("input")]);
  return new NetworkSource(facts, runner, own, why, map.header, batch);
}

/** An input; numbers that are left out are those of the picture. */
function inputIn({ header, arrays }: Block<PictureHeader>, { net }: PageFacts): Input {
  const { inputs: { input: shape }, transform } = net;
  const pixels = arrays.pixels?.values as Uint8Array | undefined;
  const picture = pixels ? pictureOf(pixels, header) : null;
  const given = arrays.input?.values as Float32Array | undefined;
  const values = given ??
    numbersOf({ ...picture!, pixels: pixels! }, shape[1], transform!.mean, transform!.std);
  return { values, shape, picture };
}

/** Put the app into the still picture's place. */
async function begin() {
  const { facts, settings } = readJson("facts");
  const root = document.getElementById("hookviz");
  if (!root) return;
  const source = started(facts);
  Object.assign(globalThis, { hookviz: publicObject(facts, source) });
  tellSize();
  try {
    const network = await source;
    const isReady = (settings: Settings) => Boolean(network.layer(settings) || network.failed);
    openView(root, network, settings, isReady, (app) => {
      new Intake(app, network);
    });
  } catch (error) {
    const why = `This browser cannot run the network: ${(error as Error).message}`;
    root.prepend(el("p", { role: "alert" }, why));
  }
}

begin();
