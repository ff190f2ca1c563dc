// One cell a layer, in order: its height is the map's size, its colour the layer's health.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Menu, Popup } from "./controls.tsx";
import { COLOURS } from "./levels.ts";
import { percent, short } from "./numbers.ts";
import type { Option } from "./controls.tsx";
import type { LayerFacts } from "./messages.d.ts";

const MEASURES: Option[] = [
  ["gradient", "size of gradients"],
  ["activation", "size of activations"],
  ["zeros", "share of zeros"],
  ["silent", "share of silent channels"],
];

interface Coloured {
  layers: LayerFacts[];
  measure: string;
  palette: Uint32Array;
}

/**
 * @param now The shown layer.
 * @param width Of the view: the labels are chosen again when it changes.
 */
export function Ribbon({ layers, measure, palette, now, width, onChoose }: Coloured & {
  now: string;
  width: number;
  onChoose: (name: string) => void;
}) {
  const cells = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(0);
  useLayoutEffect(() => setRoom(cells.current!.clientWidth), [width]);
  const looks = useMemo(() => looksOf(layers, measure, palette), [layers, measure, palette]);
  // The same elements while nothing of them changes: a view is drawn at every move of the pointer.
  const options = useMemo(() =>
    layers.map(({ name }, place) => (
      <div
        key={name}
        class={`hv-layer${looks[place].class}${name === now ? " hv-on" : ""}`}
        role="option"
        data-layer={name}
        aria-label={looks[place].words}
        aria-selected={name === now}
        title={looks[place].words}
        onClick={() => onChoose(name)}
      >
        <i style={looks[place].style} />
      </div>
    )), [looks, now]);
  const blocks = useMemo(() => blocksOf(layers, room), [layers, room]);
  return (
    <div class="hv-ribbon">
      <div
        ref={cells}
        class="hv-cells"
        role="listbox"
        tabIndex={0}
        aria-label="all layers"
        aria-orientation="horizontal"
      >
        {options}
      </div>
      <div class="hv-blocks" aria-hidden="true">{blocks}</div>
    </div>
  );
}

function looksOf(layers: LayerFacts[], measure: string, palette: Uint32Array) {
  const scale = scaleOf(layers, measureOf(layers, measure));
  const sides = layers.map(({ side }) => Math.log2(Math.max(side, 1)));
  const [least, most] = [Math.min(...sides), Math.max(...sides)];
  return layers.map((layer, place) => {
    const share = most > least ? (sides[place] - least) / (most - least) : 1;
    const isFirst = place > 0 && layers[place - 1]?.block !== layer.block;
    return {
      words: words(layer),
      class: (layer.nans + layer.infs > 0 ? " hv-wrong" : "") + (isFirst ? " hv-first" : ""),
      style: { height: `${10 + 20 * share}px`, background: colour(palette, scale.share(layer)) },
    };
  });
}

/** The scale of the colours: a click shows its ends, and what the colours say. */
export function Scale({ layers, measure, palette, onMeasure }: Coloured & {
  onMeasure: (measure: string) => void;
}) {
  const shown = measureOf(layers, measure);
  const { from, to } = useMemo(() => scaleOf(layers, shown), [layers, shown]);
  const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => colour(palette, share));
  const legend = (
    <i class="hv-legend" style={{ background: `linear-gradient(90deg, ${stops.join(", ")})` }} />
  );
  const name = MEASURES.find(([value]) => value === shown)?.[1];
  const isGraded = measureOf(layers, "gradient") === "gradient";
  return (
    <Popup
      words={legend}
      label="colours of the layers"
      title={`colours of the layers: ${name}, ${from}${to && ` to ${to}`}; click to choose`}
    >
      <label class="hv-line">
        colour of a layer:
        <Menu
          label="what the colour of a layer says"
          options={MEASURES.map((
            [value, text],
          ) => [value, text, value === "gradient" && !isGraded])}
          value={shown}
          onChoose={onMeasure}
        />
      </label>
      <span class="hv-dim hv-measure">
        <span>{from}</span>
        {legend}
        <span>{to}</span>
      </span>
    </Popup>
  );
}

/**
 * The blocks' names, as long as there is room: of the second in a row of siblings only the end.
 * @param wide Pixels of all.
 */
function blocksOf(layers: LayerFacts[], wide: number) {
  const blocks: Array<{ name: string; count: number }> = [];
  for (const { block } of layers) {
    const last = blocks[blocks.length - 1];
    if (last?.name === block) last.count += 1;
    else blocks.push({ name: block, count: 1 });
  }
  const roomOf = (count: number) => (wide * count) / layers.length - 2;
  let pushed = 0; // pixels into this block that the label before takes
  return blocks.map(({ name, count }, place) => {
    const own = roomOf(count) - pushed;
    const lacking = LETTER * name.length - own;
    const next = blocks[place + 1];
    const nextWords = next && onlyNumber(next.name, name)
      ? siblingNumber(next.name)
      : (next?.name ?? "");
    const spare = next ? roomOf(next.count) - LETTER * nextWords.length - BESIDE : 0;
    const lent = onlyNumber(name, blocks[place - 1]?.name) || lacking <= 0 || lacking > spare
      ? 0
      : lacking + BESIDE;
    const style = {
      flexGrow: count,
      overflow: lent ? "visible" : "",
      textIndent: pushed ? `${pushed + 2}px` : "",
    };
    pushed = lent;
    return (
      <span key={place} title={name} style={style}>
        {fitting(name, blocks[place - 1]?.name, own + lent)}
      </span>
    );
  });
}

const BESIDE = 8; // pixels between two labels

/** Whether the label of a block is only its number, as for the second of siblings. */
function onlyNumber(name: string, before: string | undefined) {
  const stem = unnumbered(name);
  return before !== undefined && stem !== name && stem.length > SHORT &&
    unnumbered(before) === stem;
}

const SHORT = 2; // letters that are no longer than they help: "d1", "d2"

const unnumbered = (name: string) => name.replace(/\d+$/, "");

const LETTER = 6.5; // pixels, about

/**
 * What remains of the second of siblings: of "conv4_2" "4_2", as "2" alone would be taken for the second block.
 */
function siblingNumber(name: string) {
  const stem = unnumbered(name);
  return name.slice(stem.search(/\d/) < 0 ? stem.length : stem.search(/\d/));
}

/** @param room Pixels. */
function fitting(name: string, before: string | undefined, room: number) {
  const most = Math.floor(room / LETTER);
  const number = siblingNumber(name);
  if (onlyNumber(name, before)) return number.length <= most ? number : "";
  if (name.length <= most) return name;
  const last = name.slice(name.lastIndexOf(".") + 1);
  if (last !== name && last.length <= most) return last;
  return most > 5 ? `${last.slice(0, most - 1)}…` : ""; // a number alone would be taken for a block's
}

/** The measure that is shown: without gradients that of activations. */
export function measureOf(layers: LayerFacts[], measure: string) {
  const scored = layers.some((layer) => Number(layer.gradient) > 0);
  return measure === "gradient" && !scored ? "activation" : measure;
}

/** Where each layer stands between the least and the largest. */
export function scaleOf(layers: LayerFacts[], measure: string) {
  if (measure === "zeros") {
    const share = (layer: LayerFacts) => layer.zeros;
    return { share, from: "0 %", to: "100 %" };
  }
  if (measure === "silent") {
    const share = (
      { silent, channels }: LayerFacts,
    ) => (silent === null ? null : silent / channels);
    return { share, from: "0 %", to: "100 %" };
  }
  const size = (layer: LayerFacts) => Number(layer[measure as "gradient" | "activation"]);
  const known = layers.map(size).filter((value) => value > 0);
  if (!known.length) return { share: () => null, from: "none", to: "" };
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const span = Math.log(high) - Math.log(low) || 1;
  const share = (layer: LayerFacts) =>
    size(layer) > 0 ? (Math.log(size(layer)) - Math.log(low)) / span : null;
  return { share, from: short(low), to: short(high) };
}

export function colour(palette: Uint32Array, share: number | null) {
  if (share === null) return "var(--hv-nothing)";
  const level = Math.min(Math.floor(share * COLOURS), COLOURS - 1);
  const [r, g, b] = new Uint8Array(palette.buffer, 4 * level, 3);
  return `rgb(${r}, ${g}, ${b})`;
}

function words(layer: LayerFacts) {
  const size = (value: number | null) => (value === null ? "none" : short(value));
  const wrong = [
    ...(layer.nans ? [`${layer.nans} NaN`] : []),
    ...(layer.infs ? [`${layer.infs} infinite`] : []),
  ];
  const facts = [
    `${layer.name || "(model)"}, ${layer.kind} ${layer.size}`,
    `activation ${size(layer.activation)}`,
    `gradient ${size(layer.gradient)}`,
    `zeros ${percent(layer.zeros ?? NaN)}`,
    ...(layer.silent ? [`${layer.silent} of ${layer.channels} channels silent`] : []),
  ];
  return [...facts, ...wrong].join(", ");
}
