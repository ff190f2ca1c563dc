// The menus in the captions of the pictures and at their colour bars.

import { Menu, Popup, Slider } from "./controls.tsx";
import { methodName } from "./heatmaps.ts";
import { times } from "./numbers.ts";
import { asFed } from "./pictures.ts";
import type { Option } from "./controls.tsx";
import type { Facts, Picture } from "./source.ts";
import type { State, Values } from "./state.ts";

interface Controls {
  facts: Facts;
  state: State;
  at: Values;
}

const received = new WeakMap<Picture, Picture>();

/** A picture with the values that the network receives. */
export function asReceived(picture: Picture) {
  const made = received.get(picture) ?? asFed(picture);
  received.set(picture, made);
  return made;
}

/** The input's caption: what the picture shows, and the heatmap over it. */
export function InputCaption(
  { picture, facts, state, at }: Controls & { picture: Picture | null },
) {
  const method = (
    <Menu
      label="heatmap"
      options={facts.choices.heatmap.map((name) => [name, methodName(facts, name)])}
      value={at.heatmap}
      onChoose={(heatmap) => state.set({ heatmap })}
    />
  );
  if (!picture) return method;
  const { transform } = facts;
  const fed = at.fed ? picture.fed : null;
  const size = picture.size ? times(picture.size) : `${picture.height}×${picture.width}`;
  const words = [size, (fed ?? picture).words, transform?.short, transform?.full]
    .filter(Boolean).join("; ");
  return (
    <>
      <Popup
        class="hv-label"
        words={fed ? "model input" : "input"}
        label="about the input"
        title={`about the input: ${words}`}
        kind={transform?.doubt ? "odd" : undefined}
      >
        <Menu
          label="the input as a picture, or as the network receives it"
          options={[["false", "as a picture"], ["true", "as the network receives it"]]}
          value={String(Boolean(fed))}
          hidden={!picture.fed}
          onChoose={(value) => state.set({ fed: value === "true" })}
        />
        <p class="hv-dim">{words}</p>
      </Popup>
      <span class="hv-dim">with</span>
      {method}
    </>
  );
}

/** Below the input: the opacity of the heatmap, and whether it is over the input. */
export function HeatmapMenu({ state, at }: Omit<Controls, "facts">) {
  const opacity = Math.round(100 * at.alpha);
  return (
    <>
      <label class="hv-opacity">
        <span class="hv-whole">opacity</span>
        <Slider
          label="opacity of the heatmap"
          title="opacity of the heatmap; 0 shows the input alone"
          count={101}
          position={opacity}
          words={`${opacity} %`}
          onMove={(place) => state.set({ alpha: place / 100 })}
        />
      </label>
      <Popup words="▾" label="how the heatmap is shown">
        <Menu
          label="where the heatmap is shown"
          options={[["true", "over the input"], ["false", "alone"]]}
          value={String(at.over_input)}
          onChoose={(value) => state.set({ over_input: value === "true" })}
        />
      </Popup>
    </>
  );
}

/** At the colour bars of map and gradient: their colours, and the range of these. */
export function ColourMenu({ facts, state, at, of, range }: Controls & {
  of: "feature map" | "gradient";
  /** The name of the menu of ranges. */
  range: string;
}) {
  const { cmap, normalize } = facts.choices;
  return (
    <Popup words="colours ▾" label={`colours of the ${of}`}>
      {of === "feature map" && (
        <label class="hv-line">
          <span>colour map</span>
          <Menu
            label="colours"
            options={cmap.map((name): Option => [name, name])}
            value={at.cmap}
            onChoose={(name) => state.set({ cmap: name })}
          />
        </label>
      )}
      <label class="hv-line">
        <span>range</span>
        <Menu
          label={range}
          options={normalize.map((name): Option => [name, RANGES[name] ?? name])}
          value={at.normalize}
          onChoose={(name) => state.set({ normalize: name })}
        />
      </label>
      <p class="hv-dim">
        Type the exact ends beside the bar, or drag over it; a double click shows the whole range.
      </p>
    </Popup>
  );
}

const RANGES: Record<string, string> = {
  channel: "of the channel",
  layer: "of the layer",
  percentile: "1 to 99 %",
  symmetric: "± maximum",
};
