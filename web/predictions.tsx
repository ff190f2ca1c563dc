// The model's predictions as bars; a click asks for the gradient of that class.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Prediction } from "./messages.d.ts";

interface Choice {
  /** What a click does. */
  words: string;
  /** Gets a class number, and whether it is to be subtracted from the target. */
  onChoose: (number: number, minus: boolean) => void;
}

export function Predictions({ predictions, target, ...choice }: Choice & {
  predictions: Prediction[];
  target: { name: string; number: number | null };
}) {
  const root = useRef<HTMLDivElement>(null);
  const focused = document.activeElement;
  // A class keeps the keyboard focus when it moves to another row.
  useLayoutEffect(() => {
    if (focused instanceof HTMLElement && root.current?.contains(focused)) focused.focus();
  });
  const isListed = predictions.some(({ number }) => number === target.number);
  return (
    <div ref={root} class="hv-predictions" role="group" aria-label="predictions">
      {predictions.map((prediction) => (
        <Bar
          key={prediction.number}
          {...choice}
          prediction={prediction}
          on={prediction.number === target.number}
        />
      ))}
      {!isListed && target.name !== "nothing" && (
        <span class="hv-prediction hv-on hv-other" title={target.name}>
          <b>{target.name}</b>
        </span>
      )}
    </div>
  );
}

function Bar({ prediction, on, words, onChoose }: Choice & {
  prediction: Prediction;
  on: boolean;
}) {
  const { number, name, value, before, change } = prediction;
  const isShare = value !== null && value >= 0 && value <= 1 && prediction.words.endsWith("%");
  const changed = change && ` (${change})`;
  return (
    <button
      type="button"
      class={`hv-prediction${on ? " hv-on" : ""}`}
      data-number={number}
      aria-pressed={on}
      title={`${name}, class ${number}, ${prediction.words}${changed}: ${words}`}
      onClick={(event) => onChoose(number, event.shiftKey)}
    >
      <i class="hv-share" style={{ width: isShare ? `${100 * value}%` : "0" }} />
      <b>{name}</b>
      <em>{prediction.words}</em>
      {change && isShare && before !== null && (
        <s class="hv-before" style={{ left: `${100 * before}%` }} />
      )}
      {/* There is room for the first part; the title has all of them. */}
      {change && (
        <small>
          {change.split(" · ").map((part, place) => (
            <span key={place}>{`${place ? " · " : ""}${part}`}</span>
          ))}
        </small>
      )}
    </button>
  );
}
