// The colours from low to high; a drag, or a number that is typed, chooses what they span.

import { useLayoutEffect, useRef } from "preact/hooks";
import { Canvas } from "./controls.tsx";
import { shareOf } from "./dom.ts";
import { COLOURS, paint, toLevels } from "./levels.ts";
import { short } from "./numbers.ts";
import type { ComponentChildren, JSX } from "preact";
import type { Ends } from "./state.ts";

export interface Bar {
  /** The range of the values. */
  whole: Ends;
  palette: Uint32Array;
  /** The ends that the user chose. */
  chosen?: Ends | null;
  /** Where the colours end by themselves, if not at the ends of the range. */
  robust?: Ends | null;
}

/** @param onChoose Gets the chosen ends, or null for the range's own; without it they are fixed. */
export function Colourbar({ name, bar, isHidden, onChoose, children }: {
  name: string;
  bar: Bar | null;
  /** Whether only the middle is shown. */
  isHidden?: boolean;
  onChoose?: (ends: Ends | null) => void;
  children?: ComponentChildren;
}) {
  const from = useRef<number | null>(null);
  const { whole, palette, chosen = null, robust = null } = bar ?? {
    whole: { low: 0, high: 1 },
    palette: NO_COLOURS,
  };
  const ends = chosen ?? robust ?? whole;
  const texts = [short(ends.low), short(ends.high)];
  const valueAt = (event: JSX.TargetedPointerEvent<HTMLElement>) => {
    const share = Math.min(Math.max(shareOf(event, event.currentTarget).x, 0), 1);
    return whole.low + share * (whole.high - whole.low);
  };
  const release = () => (from.current = null);
  const listeners = onChoose && {
    title: "drag to choose what the colours span; double-click for all",
    onPointerDown(event: JSX.TargetedPointerEvent<HTMLElement>) {
      event.currentTarget.setPointerCapture(event.pointerId);
      from.current = valueAt(event);
      event.preventDefault();
    },
    onPointerMove(event: JSX.TargetedPointerEvent<HTMLElement>) {
      if (from.current === null) return;
      const [low, high] = [from.current, valueAt(event)].sort((a, b) => a - b);
      if ((high - low) / (whole.high - whole.low) > 0.01) onChoose({ low, high });
    },
    onPointerUp: release,
    onPointerCancel: release,
    onDblClick: () => onChoose(null),
  };
  const draw = (canvas: HTMLCanvasElement) => {
    // All values of the range from left to right, each in its colour.
    const step = (whole.high - whole.low) / COLOURS;
    const values = Float64Array.from({ length: COLOURS }, (_, i) => whole.low + (i + 0.5) * step);
    paint(canvas, toLevels(values, { ...ends, precision: "double" }), COLOURS, 1, palette);
  };
  const end = (which: "low" | "high", words: string) => (
    <End
      label={`${words} value of the colours of the ${name}`}
      value={ends[which]}
      onType={onChoose && ((typed) => {
        const next = { ...ends, [which]: typed };
        const isGood = next.low < next.high; // NaN is not
        onChoose(isGood ? next : null);
        return isGood ? next[which] : whole[which];
      })}
    />
  );
  const width = Math.max(...texts.map((text) => text.length)) + 1;
  return (
    <div class={`hv-scale${chosen ? " hv-chosen" : ""}`} style={{ "--end": `${width}ch` }}>
      <div class="hv-bar" hidden={isHidden} {...listeners}>
        <Canvas
          aria-hidden="true"
          paint={draw}
          deps={[whole.low, whole.high, ends.low, ends.high, palette]}
        />
      </div>
      <div class="hv-ends">
        {!isHidden && end("low", "least")}
        <span class="hv-middle">{children}</span>
        {!isHidden && end("high", "largest")}
      </div>
    </div>
  );
}

/** @param onType Returns the value that is shown instead of what was typed. */
function End({ label, value, onType }: {
  label: string;
  value: number;
  onType?: (typed: number) => number;
}) {
  const input = useRef<HTMLInputElement>(null);
  const show = (shown: number) => {
    input.current!.value = short(shown);
  };
  // Not as an attribute: a drawing would overwrite what is being typed.
  useLayoutEffect(() => show(value), [value]);
  return (
    <input
      ref={input}
      class="hv-end"
      aria-label={label}
      title={String(value)}
      size={8}
      inputMode="decimal"
      readOnly={!onType}
      onChange={({ currentTarget }) => {
        const text = currentTarget.value.replace(/−/g, "-").trim();
        if (onType) show(onType(text ? Number(text) : NaN));
      }}
    />
  );
}

const NO_COLOURS = new Uint32Array(256);
