// The entry of a training's page.

import { readJson } from "./dom.ts";
import { fromBase64 } from "./levels.ts";
import { Steps } from "./steps.tsx";
import { followTheme } from "./theme.ts";

const root = document.getElementById("hookviz")!;
const steps = readJson("steps").map(([at, text]: [number, string]) => [at, fromBase64(text)]);
followTheme();
new Steps(root).take(readJson("facts"), steps);
