// All keys, and a tour of half a minute: what "?" opens.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Toggle } from "./controls.tsx";
import type { ComponentChildren } from "preact";
import type { App } from "./app.ts";

const CLASS = "⇧ click a prediction";
const THUMBNAIL = "⇧ click a thumbnail";
const KEY_WORDS: Array<[string, string]> = [
  ["← →", "previous / next channel"],
  ["↑ ↓", "previous / next layer"],
  ["Home, End", "first / last channel; on the layer's slider: first / last layer"],
  ["Page ↑ ↓", "previous / next page of channels"],
  ["⇧ ← → ↑ ↓", "move the position"],
  ["b", "channels for this position: sorted by how far their value there is above their mean"],
  ["l", "channels most similar to the shown one"],
  ["t", "the channel that contributes most to the target"],
  ["a", "heatmaps of all layers"],
  ["/", "find a layer by name, type or size"],
  ["w", "why this value?"],
  ["m", "map of the network"],
  ["Ctrl + scroll", "zoom; after clicking a picture, scroll alone"],
  ["drag, double-click", "move the enlarged picture, show all of it"],
  [CLASS, "compare the target with a class or a position of the output"],
  [THUMBNAIL, "show two pictures side by side"],
  ["Ctrl + z, Ctrl + ⇧ z", "undo, redo: edits, target, layer, channel"],
  ["Esc", "clear the position"],
  ["?", "this list"],
];

/** The drawers that keys open. */
const DRAWERS: Record<string, string> = { w: "why", m: "map", a: "heatmaps" };

/** A modal sheet over the view; Esc closes it, and its keys are its own. */
export function Sheet({ label, onClose, children, ...attributes }: {
  label: string;
  onClose: () => void;
  children: ComponentChildren;
  class?: string;
  onKeyDown?: (event: KeyboardEvent) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const { current } = dialog;
    current!.showModal();
    return () => current!.close(); // which gives the focus back
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`hv-dialog ${attributes.class ?? ""}`}
      aria-label={label}
      onKeyDown={(event) => {
        event.stopPropagation();
        attributes.onKeyDown?.(event);
      }}
      onClick={(event) => event.target === dialog.current && onClose()} // the backdrop
      onClose={() => dialog.current && onClose()}
    >
      {children}
    </dialog>
  );
}

/** All keys; the tour takes the place of their sheet. */
export function Help({ app, onClose }: { app: App; onClose: () => void }) {
  const [isTour, setTour] = useState(false);
  if (isTour) return <Tour app={app} onClose={onClose} />;
  const { source, pictures, parts: { drawers } } = app;
  const keys = KEY_WORDS.filter(([key]) =>
    (!DRAWERS[key] || drawers.offered.has(DRAWERS[key])) &&
    (key !== CLASS || source.write) && (key !== THUMBNAIL || pictures?.pairs)
  );
  return (
    <Sheet label="keys" onClose={onClose}>
      <h2>Keys</h2>
      <table class="hv-keys">
        <tbody>
          {keys.map(([key, does]) => (
            <tr key={key}>
              <th scope="row">{key}</th>
              <td>{does}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <div class="hv-line">
        <Toggle autofocus onClick={() => setTour(true)}>a tour of half a minute</Toggle>
        <Toggle onClick={onClose}>close</Toggle>
      </div>
    </Sheet>
  );
}

/** The visible parts of the face, five at most, and what each is for. */
function stops({ root, source, tools }: App): Array<[HTMLElement, string]> {
  const off = source.live && !tools.presents
    ? " Under Edit you scale it or switch it off, and the prediction follows."
    : "";
  const all: Array<[string, string]> = [
    [
      ".hv-layer-row",
      "The network: each column is a layer, from the input to the output. Click one, or press ↑ ↓.",
    ],
    [".hv-answers", "The predictions. Click a class to see its gradient and heatmap."],
    [".hv-activation", `One channel of the layer's output. Press ← → for the others.${off}`],
    [
      ".hv-input",
      "Click a position in any picture: you see its value and the part of the input that it depends on. Key b shows the channel that responds most there, measured against its mean.",
    ],
    [".hv-mosaic", "All channels of the layer, in the order chosen above. Click one."],
  ];
  return all.flatMap(([part, words]) => {
    const element = root.querySelector<HTMLElement>(part);
    return element?.checkVisibility() ? [[element, words]] : [];
  });
}

function Tour({ app, onClose }: { app: App; onClose: () => void }) {
  const [all] = useState(() => stops(app));
  const [place, setPlace] = useState(0);
  const text = useRef<HTMLParagraphElement>(null);
  const [part, words] = all[place];
  const go = (to: number) => to < all.length ? setPlace(Math.max(to, 0)) : onClose();
  useLayoutEffect(() => {
    part.classList.add("hv-pointed");
    part.scrollIntoView({ block: "nearest" });
    beside(text.current!.closest("dialog")!, part.getBoundingClientRect());
    return () => part.classList.remove("hv-pointed");
  }, [part]);
  return (
    <Sheet
      label="tour"
      class="hv-tour"
      onClose={onClose}
      onKeyDown={({ key }) => {
        if (key === "ArrowRight") go(place + 1);
        if (key === "ArrowLeft") go(place - 1);
      }}
    >
      <p ref={text} aria-live="polite">{words}</p>
      <div class="hv-line">
        <span class="hv-dim">{`${place + 1} of ${all.length}`}</span>
        <Toggle disabled={place === 0} onClick={() => go(place - 1)}>back</Toggle>
        <Toggle autofocus onClick={() => go(place + 1)}>next</Toggle>
        <Toggle onClick={onClose}>close</Toggle>
      </div>
    </Sheet>
  );
}

/** Put a sheet where it does not hide the part that it is about: below, above, or at a side. */
function beside(made: HTMLElement, part: DOMRect) {
  const { width, height } = made.getBoundingClientRect();
  const [wide, high] = [document.documentElement.clientWidth, globalThis.innerHeight];
  const inside = (at: number, most: number) => Math.max(8, Math.min(at, most - 8));
  let [left, top] = [part.left, part.bottom + 8];
  if (top + height > high) top = part.top - height - 8;
  if (top < 8) {
    top = inside(part.top, high - height);
    left = part.right + 8 + width < wide ? part.right + 8 : part.left - width - 8;
  }
  made.style.left = `${inside(left, wide - width)}px`;
  made.style.top = `${inside(top, high - height)}px`;
}
