// Controls for edits: the shown channel's factor, the list of edits, and the run that is shown.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Menu, Toggle } from "./controls.tsx";
import { FlipView } from "./flip.tsx";
import { middle } from "./numbers.ts";
import type { App } from "./app.ts";
import type { EditFacts } from "./messages.d.ts";

const CHIP = 48; // letters of an edit's chip
const UNMOVED = { key: "", channel: "", factor: 1 };
const REST = 60; // milliseconds without movement before the slider's factor is sent

export function EditsView({ app }: { app: App }) {
  const { facts, source } = app;
  const { edits, run_names: runs } = facts;
  const { shown_run: run, layer, channel } = (app.shown ?? app).at;
  const [original, edited, difference] = runs;
  const names: Record<string, string | undefined> = { edited, original, difference };
  const layers = [...new Set(edits.map((edit) => edit.layer))];
  const own = edits.filter((edit) => edit.layer === layer && edit.channels.includes(channel));
  const factor = own.at(-1)?.factor;
  return (
    <div>
      <div class="hv-line hv-hands">
        <Factor app={app} place={{ layer, channel }} factor={factor ?? 1} />
        <FlipView flip={app.flip} />
      </div>
      <div class="hv-line hv-hands" hidden={!runs.length && !edits.length}>
        <span class="hv-dim hv-what">shown:</span>
        <Menu
          label="whose pictures are shown"
          options={["edited", "original", "difference"].map((name) => [name, names[name] ?? name])}
          value={run}
          onChoose={(shown) => app.state.set({ shown_run: shown })}
        />
        <Toggle
          title="undo all edits"
          hidden={edits.length < 2}
          onClick={() => source.edit({ set: "edits", keys: [] })}
        >
          restore all
        </Toggle>
        <span class="hv-edits">
          {layers.map((name) => (
            <Chips
              key={name}
              layer={name}
              edits={edits.filter((edit) => edit.layer === name)}
              onDrop={(key) => source.edit({ set: "drop", key })}
            />
          ))}
        </span>
      </div>
    </div>
  );
}

/**
 * The factor of a channel: the number changes at once, the network when the slider rests.
 * @param factor As the kernel has it.
 */
function Factor({ app, place, factor }: {
  app: App;
  place: { layer: string; channel: number };
  factor: number;
}) {
  const kind = app.shown?.data.word ?? "channel";
  const key = JSON.stringify([place, app.facts.edits]);
  const timer = useRef(0);
  // The edit is for the channel shown at pointerdown, even if another is shown at the click.
  const pressed = useRef<{ place: typeof place; factor: number } | null>(null);
  const [moved, setMoved] = useState(UNMOVED);
  const isWaiting = Boolean(timer.current || app.source.busy);
  // Otherwise the same edits, once they are back, would show the factor that was undone.
  useLayoutEffect(() => {
    if (!isWaiting) setMoved(UNMOVED);
  }, [key, isWaiting]);
  const channel = JSON.stringify(place);
  // While the slider is in use, and until its last factor has run, it is ahead of the kernel.
  const isAhead = moved.key === key || (isWaiting && moved.channel === channel);
  const shown = isAhead ? moved.factor : factor;
  const send = (value: number, to: typeof place) => {
    clearTimeout(timer.current);
    timer.current = 0;
    app.source.edit({ set: "factor", factor: value, ...to });
  };
  const off = kind === "head" ? "switch the head off" : "switch the channel off";
  return (
    <>
      <span class="hv-dim hv-what">scale {kind} {place.channel}:</span>
      <input
        type="range"
        class="hv-factor"
        min={0}
        max={2}
        step={0.05}
        value={Math.min(shown, 2)}
        aria-label={`factor of ${place.channel}`}
        aria-valuetext={shown.toFixed(2)}
        onInput={(event) => {
          const value = Number(event.currentTarget.value);
          setMoved({ key, channel, factor: value });
          clearTimeout(timer.current);
          timer.current = setTimeout(() => send(value, place), REST);
        }}
      />
      <b class="hv-number-now">{shown.toFixed(2)}</b>
      <Toggle
        aria-pressed={factor === 0}
        title={factor === 0 ? "switch it on again" : off}
        onPointerDown={() => (pressed.current = { place, factor })}
        onClick={() => {
          const { place: to, factor: before } = pressed.current ?? { place, factor };
          pressed.current = null;
          send(before === 0 ? 1 : 0, to);
        }}
      >
        off
      </Toggle>
    </>
  );
}

/** A chip for each edit of a layer; several are framed together, and have the layer's name once. */
function Chips({ layer, edits, onDrop }: {
  layer: string;
  edits: EditFacts[];
  onDrop: (key: number) => void;
}) {
  const isNamed = edits.length > 1 && edits.every(({ words }) => words.startsWith(`${layer}, `));
  const chips = edits.map(({ key, words }) => (
    <button
      key={key}
      type="button"
      class="hv-edit"
      title={`remove: ${words}`}
      aria-label={`${words}, remove`}
      onClick={() => onDrop(key)}
    >
      {`${middle(isNamed ? words.slice(layer.length + 2) : words, CHIP)} ✕`}
    </button>
  ));
  if (edits.length === 1) return <>{chips}</>;
  return (
    <span class="hv-edits-of-layer">
      {isNamed && <span class="hv-dim">{layer}</span>}
      {chips}
    </span>
  );
}
