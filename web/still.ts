// A page's picture of its view: input, map and gradient with their captions and their colours' ends.

import { contextOf } from "./levels.ts";
import { methodName } from "./heatmaps.ts";
import { short } from "./numbers.ts";
import type { App } from "./app.ts";

const SIDE = 480; // pixels of a picture, whose own values stay sharp
const GAP = 24;
const LINE = 34;
const WIDE = GAP + 3 * (SIDE + GAP);

export function stillOf({ parts: { input, map, slope }, bars, heatmaps, facts, at, root }: App) {
  const panels = [
    { panel: input, name: `input with ${methodName(facts, at.heatmap)}`, bar: heatmaps.bar },
    { panel: map, name: map.label, bar: bars.map },
    { panel: slope, name: slope.label, bar: bars.slope },
  ];
  const ratio = input.frame.clientHeight / input.frame.clientWidth;
  const high = Math.round(SIDE * ratio);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [WIDE, high + 3 * LINE + 2 * GAP];
  const context = contextOf(canvas);
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = getComputedStyle(root).color;
  context.textBaseline = "middle";
  const write = (words: string, x: number, y: number, align: CanvasTextAlign, room: number) => {
    context.textAlign = align;
    context.fillText(words, x, y + LINE / 2, room);
  };
  context.font = "600 22px system-ui, sans-serif";
  write(`${facts.model}, ${at.layer}`, GAP, GAP, "left", WIDE - 2 * GAP);
  context.font = "20px system-ui, sans-serif";
  for (const [n, { panel, name, bar }] of panels.entries()) {
    const left = GAP + n * (SIDE + GAP);
    const top = GAP + 2 * LINE;
    write(`${name.charAt(0).toUpperCase()}${name.slice(1)}`, left, GAP + LINE, "left", SIDE);
    context.imageSmoothingEnabled = panel.isSmooth;
    if (!panel.isEmpty) context.drawImage(panel.canvas, left, top, SIDE, high);
    else write(panel.words, left + SIDE / 2, top + high / 2, "center", SIDE);
    if (!bar) continue;
    const { low, high: most } = bar.chosen ?? bar.robust ?? bar.whole;
    write(short(low), left, top + high, "left", SIDE / 2);
    write(short(most), left + SIDE, top + high, "right", SIDE / 2);
  }
  return canvas;
}
