// The entry of a page that runs its network: the same face, whose numbers are computed here.

import { block, fileIn, inflated, tellSize } from "./blocks.ts";
import { el, readJson, sure } from "./dom.ts";
import { Intake } from "./intake.tsx";
import { NetworkSource } from "./network.ts";
import { openView } from "./opening.ts";
import { pictureOf } from "./pictures.ts";
import { publicObject } from "./publicObject.ts";
import { Runner } from "./runner.ts";
import type { PictureHeader, Settings } from "./messages.d.ts";
import type { PageFacts } from "./network.ts";
import type { NetworkGraph, Refused } from "./source.ts";
import type { HeldAnswers } from "./walk.ts";

/** Unpack model and runtime, and start the worker. */
async function started(facts: PageFacts) {
  const program = await fileIn("program");
  const text = new TextDecoder().decode(await inflated(program, [program.length]));
  const runner = new Runner(text, await fileIn("runtime"), fileIn("model"), facts.net);
  const [{ header, arrays }, why, map] = await Promise.all([
    block<PictureHeader>("input").then(sure),
    block<HeldAnswers["header"]>("why").then(sure),
    block<NetworkGraph | Refused>("map").then(sure),
  ]);
  const picture = arrays.pixels && pictureOf(arrays.pixels.values, header);
  await runner.ready;
  const values = arrays.input.values as Float32Array;
  const input = { values, shape: arrays.input.shape, picture };
  return new NetworkSource(facts, runner, input, why, map.header);
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
