// The entry of a training's page.

import { readJson } from "./dom.ts";
import { fromBase64 } from "./levels.ts";
import { StepsView } from "./steps.ts";

const root = document.getElementById("hookviz")!;
const steps = readJson("steps").map(([at, text]: [number, string]) => [at, fromBase64(text)]);
new StepsView(root).take(readJson("facts"), steps);
