// Events in a row, a tick for each, taller for a deeper module; a click or a drag goes there.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Canvas, Slider } from "./controls.tsx";
import { shareOf } from "./dom.ts";
import { contextOf } from "./levels.ts";

const WIDEST = 18; // pixels that a tick and its gap take at most
const FAINT = 0.16; // opacity of the events that a filter leaves out

export interface Tick {
  side: "forward" | "backward" | "unfired";
  depth: number;
}

interface Events {
  ticks: Tick[];
  /** The events that pass the filters. */
  found: number[];
}

/**
 * A slider over events, whose knob is as wide as a tick; `onGo` gets the index of the event under
 * the pointer.
 */
export function Timeline({ ticks, found, at, isDark, words, onGo }: Events & {
  at: number;
  isDark: boolean;
  /** The description of an event. */
  words: (place: number) => string;
  onGo: (place: number) => void;
}) {
  const root = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [pointed, setPointed] = useState(0);
  useLayoutEffect(() => {
    const follow = new ResizeObserver(() => setWidth(root.current!.clientWidth));
    follow.observe(root.current!);
    return () => follow.disconnect();
  }, []);
  const count = ticks.length;
  return (
    <div
      ref={root}
      class="hv-timeline"
      style={{ maxWidth: `${WIDEST * count}px`, "--count": count }}
    >
      <Canvas
        aria-hidden="true"
        paint={(canvas) => drawTicks(canvas, { ticks, found })}
        deps={[found, width, isDark]}
      />
      <Slider
        label="event"
        title={words(pointed)}
        count={count}
        position={at}
        words={words(at)}
        onMove={onGo}
        onPointerMove={(event) => {
          const { x } = shareOf(event, event.currentTarget);
          setPointed(Math.min(Math.max(Math.floor(x * count), 0), count - 1));
        }}
      />
      <div class="hv-now" style={{ left: `${(100 * (at + 0.5)) / count}%` }} aria-hidden="true" />
    </div>
  );
}

function drawTicks(canvas: HTMLCanvasElement, { ticks, found }: Events) {
  const { width, height } = canvas.getBoundingClientRect();
  const sharp = devicePixelRatio || 1;
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  const context = contextOf(canvas);
  const style = getComputedStyle(canvas);
  const passing = new Set(found);
  const deepest = ticks.reduce((most, { depth }) => Math.max(most, depth), 0);
  const wide = canvas.width / ticks.length;
  const gap = wide >= 3 * sharp ? Math.max(sharp, Math.round(0.15 * wide)) : 0;
  ticks.forEach(({ side, depth }, place) => {
    const high = (canvas.height * (depth + 1)) / (deepest + 1);
    context.fillStyle = style.getPropertyValue(`--hv-${side}`);
    context.globalAlpha = passing.has(place) ? 1 : FAINT;
    const left = Math.floor(place * wide); // whole pixels: halves would shimmer
    const right = Math.max(Math.floor((place + 1) * wide) - gap, left + 1);
    context.fillRect(left, canvas.height - high, right - left, high);
  });
}
