// The entry of a training's page.

import { StepsView } from "./steps.js";

/** @param {string} id */
function inPage(id) {
  return JSON.parse(document.getElementById(id)?.textContent ?? "null");
}

const packedSteps = inPage("steps");
new StepsView(/** @type {HTMLElement} */ (document.getElementById("hookviz"))).take(
  inPage("facts"),
  packedSteps.map((/** @type {[number, string]} */ [at, text]) => [
    at,
    Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)),
  ]),
);
