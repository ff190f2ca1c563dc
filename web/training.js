// The entry of a training's page.

import { readJson } from "./dom.js";
import { fromBase64 } from "./levels.js";
import { StepsView } from "./steps.js";

const root = /** @type {HTMLElement} */ (document.getElementById("hookviz"));
const steps = readJson("steps").map((/** @type {[number, string]} */ [at, text]) => [at, fromBase64(text)]);
new StepsView(root).take(readJson("facts"), steps);
