// The shown layer in words, the field that finds a layer, and the row of channels.

import { useMemo } from "preact/hooks";
import { Breakable, Menu, Slider } from "./controls.tsx";
import { AblationView } from "./ablation.tsx";
import { firstOf } from "./numbers.ts";
import { Search } from "./search.tsx";
import type { App } from "./app.ts";
import type { LayerFacts } from "./messages.d.ts";

const AXES = ["call", "sample", "depth"] as const;

export const nameOf = ({ name }: { name: string }) => name || "(model)";

/** @param rank The layer's position among all, in words. */
export function LayerWords({ layer, rank, waiting }: {
  layer: LayerFacts;
  rank: string;
  /** The reason for waiting, or empty. */
  waiting: string;
}) {
  const does = `${layer.kind} ${layer.text}`.trim();
  return (
    <div class="hv-value">
      <h2 class="hv-name" title={nameOf(layer)}>
        <Breakable name={nameOf(layer)} />
      </h2>
      <span class="hv-dim hv-does" title={[does, layer.size].filter(Boolean).join(" · ")}>
        <span>{waiting || [rank, layer.size].filter(Boolean).join(" · ")}</span>
        {/* Each is shown whole, or not at all: what does not fit wraps out of sight. */}
        {!waiting && layer.kind && <span>{`· ${layer.kind}`}</span>}
        {!waiting && <span>{firstOf(layer.text)}</span>}
      </span>
    </div>
  );
}

/** The field that finds a layer, behind a button. */
export function Finder({ app }: { app: App }) {
  const { isFinding: open, facts: { layers } } = app;
  const items = useMemo(() =>
    layers.map((layer) => ({
      key: layer.name,
      name: nameOf(layer),
      more: `${layer.kind} ${layer.text.replace(/, [\d,]+ parameters$/, "")} · ${layer.size}`,
    })), [layers]);
  return (
    <div class="hv-end-of-row">
      <button
        type="button"
        class="hv-finder"
        title="find a layer by name, type or size (key /)"
        aria-label="search"
        aria-expanded={open}
        // A press on the button must not close the field that the click would then open again.
        onPointerDown={(event) => event.preventDefault()}
        onClick={() => app.find(!open)}
      >
        ⌕
      </button>
      {open && (
        <Search
          label="find a layer"
          hint="find a layer: name, type, size …"
          none="no layer has that name, type or size"
          items={items}
          focused
          onChoose={(layer) => app.set({ layer })}
          onLeave={() => app.find(false)}
        />
      )}
    </div>
  );
}

/** The sliders of channel, call, sample and depth, and the order of the channels. */
export function ChannelRow({ app, word }: { app: App; word: string }) {
  const { shown, state } = app;
  const at = shown?.at ?? app.at;
  const counts = shown?.data.header.counts ?? { channel: 0, call: 1, sample: 1, depth: 1 };
  const { position = 0, ranking } = shown ?? {};
  const isSorted = ranking && ranking.name !== "index";
  const several = AXES.filter((name) => counts[name] > 1);
  return (
    <div class={`hv-heading${several.length ? " hv-several" : ""}`}>
      <div class="hv-row">
        <span class="hv-dim hv-row-name">{word}</span>
        <Slider
          class="hv-channels"
          label="channel"
          count={counts.channel ?? 0}
          position={position}
          words={`${word} ${at.channel} of ${counts.channel}`}
          onMove={(place) => app.toPosition(place)}
        />
        <span class="hv-work">
          <AblationView ablation={app.ablation} data={shown?.data} />
          <span class="hv-dim" role="status" title={ranking?.words} hidden={!ranking?.words}>
            {ranking?.words}
          </span>
        </span>
        <div class="hv-value hv-value-line">
          <b class="hv-number-now">{shown ? at.channel : ""}</b>
          <span class="hv-by">
            <span class="hv-dim">
              {!shown
                ? ""
                : isSorted
                ? `rank ${position + 1} of ${counts.channel} by`
                : `of ${counts.channel}, sorted by`}
            </span>
            <Menu
              label="order of the channels"
              options={app.facts.choices.order.map((name) => [name, app.facts.order_names[name]])}
              value={at.order}
              onChoose={(order) => app.toOrder(order)}
            />
          </span>
        </div>
      </div>
      <div class="hv-line hv-others">
        {several.map((name) => {
          const words = `${at[name]} (of 0 to ${counts[name] - 1})`;
          return (
            <label key={name} class="hv-line hv-more">
              <span>{name}</span>
              <Slider
                label={name}
                count={counts[name]}
                position={at[name]}
                words={`${name} ${words}`}
                onMove={(place) => state.set({ [name]: place })}
              />
              <b class="hv-number-now">{words}</b>
            </label>
          );
        })}
      </div>
    </div>
  );
}

/** The stage of the layer whose output is shown. */
export function ShownAfter({ app }: { app: App }) {
  const { shown, source } = app;
  return (
    <Menu
      label="raw output, or after normalization or activation"
      options={app.facts.choices.shown_after.map((name) => [name, SHOWN_AFTER[name] ?? name])}
      value={(shown?.at ?? app.at).shown_after}
      hidden={!source.live || Boolean(shown?.data.header.query)}
      onChoose={(name) => app.state.set({ shown_after: name })}
    />
  );
}

const SHOWN_AFTER: Record<string, string> = {
  output: "raw output",
  norm: "after normalization",
  activation: "after activation",
};
