// One picture in its frame: at its own pixels, zoomed and crossed together with all others.

import { Canvas, Toggle } from "./controls.tsx";
import { put } from "./levels.ts";
import type { ComponentChildren, JSX } from "preact";
import type { Place, State } from "./state.ts";

/** A part of a picture, as fractions of it. */
export interface Part {
  u: number;
  v: number;
  wide: number;
  high: number;
}

type Pointer = JSX.TargetedPointerEvent<HTMLElement>;

/** What a panel shows, and what the pointer does on it. */
export class Panel {
  frame!: HTMLDivElement;
  canvas!: HTMLCanvasElement;
  label = "";
  side = "";
  alt = "";
  title = "";
  words = "";
  isTag = false; // whether the words are over the picture, not in its place
  way: string | null = null; // a layer that has what is missing here
  isStale = false;
  isSmooth = false;
  elsewhere = false; // whether positions of the other pictures do not apply here
  /** Outlines: of one value of the layer, and of the receptive field. */
  cell: Part | null = null;
  field: Part | null = null;
  deps: unknown[] = []; // all that the picture depends on
  paint: (canvas: HTMLCanvasElement) => void = () => {};
  held: { x: number; y: number; zoom: { k: number; x: number; y: number } } | null = null;
  onWay: ((layer: string) => void) | null = null;
  onChosen: () => void = () => {}; // a position was chosen here
  /** Replaces the choice of a position on a click. */
  onPick: ((place: Place, minus: boolean) => void) | null = null;

  constructor(public state: State, public name: string) {}

  draw(deps: unknown[], paint: (canvas: HTMLCanvasElement) => void) {
    [this.deps, this.paint] = [deps, paint];
  }

  /** Show a text instead of the picture, or over it; an empty text shows the picture alone. */
  tell(words: string, isTag: boolean = false, way: string | null = null) {
    [this.words, this.isTag, this.way] = [words, isTag && words !== "", way];
  }

  get isEmpty() {
    return this.words !== "" && !this.isTag;
  }

  /** The picture's transform, by the zoom that all panels share. */
  get transform() {
    const { k, x, y } = this.state.values.zoom;
    return k === 1 ? "" : `scale(${k}) translate(${-100 * x}%, ${-100 * y}%)`;
  }

  /** The position under the pointer. */
  at(event: MouseEvent): Place {
    const box = this.frame.getBoundingClientRect();
    const { k, x, y } = this.state.values.zoom;
    const inside = (share: number) => Math.min(Math.max(share, 0), 1);
    return [
      inside(y + (event.clientY - box.top) / box.height / k),
      inside(x + (event.clientX - box.left) / box.width / k),
    ];
  }

  move(event: Pointer) {
    if (this.held) {
      const box = this.frame.getBoundingClientRect();
      const { k, x, y } = this.held.zoom;
      const right = (event.clientX - this.held.x) / box.width / k;
      const down = (event.clientY - this.held.y) / box.height / k;
      if (k > 1) this.state.pan(k, x - right, y - down);
    }
    this.state.set({ hover: this.at(event) });
  }

  press(event: Pointer) {
    if (event.button) return;
    this.held = { x: event.clientX, y: event.clientY, zoom: this.state.values.zoom };
    this.frame.setPointerCapture(event.pointerId);
    this.state.set({ hover: this.at(event) });
  }

  /** A click chooses a position; a drag does not. */
  release(event: Pointer) {
    const { held } = this;
    this.held = null;
    if (!held || Math.hypot(event.clientX - held.x, event.clientY - held.y) >= 4) return;
    const place = this.at(event);
    this.onChosen();
    if (this.onPick) this.onPick(place, event.shiftKey);
    else this.state.set({ place });
  }

  wheel(event: WheelEvent) {
    // A page that is scrolled past the pictures goes on scrolling: out of a fitted one, and
    // into one that has not been looked at.
    const { k } = this.state.values.zoom;
    const near = k > 1 || this.frame.contains(document.activeElement);
    if ((!near && !event.ctrlKey) || (k === 1 && event.deltaY > 0)) return;
    event.preventDefault();
    const [v, u] = this.at(event);
    this.state.zoom(Math.exp(-event.deltaY / 300), u, v);
  }
}

const ignore = (event: Event) => event.stopPropagation();

/** A heading, the picture with what is over it, and what is below. */
export function PanelView({ panel, head, over, below, beside, onKeyDown }: {
  panel: Panel;
  head: ComponentChildren;
  over?: ComponentChildren;
  below?: ComponentChildren;
  beside?: ComponentChildren;
  onKeyDown?: (event: KeyboardEvent) => void;
}) {
  const { state, way, isEmpty } = panel;
  const { zoom: { k, x, y } } = state.values;
  const { spot } = state;
  const isCrossed = spot && !isEmpty && !panel.elsewhere;
  return (
    <div class={`hv-panel hv-${panel.name}${panel.isStale ? " hv-stale" : ""}`}>
      <div class="hv-cap">{head}</div>
      <div
        ref={(frame) => {
          if (frame) panel.frame = frame;
        }}
        class="hv-frame"
        tabIndex={0}
        role="img"
        aria-label={panel.alt}
        title={panel.title || undefined}
        onPointerMove={(event) => panel.move(event)}
        onPointerLeave={() => panel.held || state.set({ hover: null })}
        onPointerDown={(event) => panel.press(event)}
        onPointerUp={(event) => panel.release(event)}
        onPointerCancel={() => (panel.held = null)}
        onDblClick={() => state.fit()}
        onWheel={(event) => panel.wheel(event)}
        onKeyDown={onKeyDown}
      >
        <Canvas
          class={`hv-map${panel.isSmooth ? " hv-smooth" : ""}`}
          hidden={isEmpty}
          style={{ transform: panel.transform }}
          paint={(canvas) => {
            panel.canvas = canvas;
            panel.paint(canvas);
          }}
          deps={panel.deps}
        />
        <i
          class="hv-cross hv-vertical"
          hidden={!isCrossed}
          style={{ left: `${100 * k * ((spot?.[1] ?? 0) - x)}%` }}
        />
        <i
          class="hv-cross hv-horizontal"
          hidden={!isCrossed}
          style={{ top: `${100 * k * ((spot?.[0] ?? 0) - y)}%` }}
        />
        <Outline panel={panel} part={panel.cell} class="hv-cell" />
        <Outline panel={panel} part={panel.field} class="hv-cell hv-field" />
        <span class={`hv-words${panel.isTag ? " hv-tag" : ""}`}>{panel.words}</span>
        {way !== null && panel.onWay && (
          // A press on the button is not on the picture.
          <Toggle
            class="hv-toggle hv-way"
            onClick={() => panel.onWay?.(way)}
            onPointerDown={ignore}
            onPointerUp={ignore}
            onKeyDown={ignore}
          >
            go to {way || "(model)"}
          </Toggle>
        )}
        {over}
      </div>
      <div class="hv-below">{below}</div>
      {beside}
    </div>
  );
}

function Outline({ panel, part, ...attributes }: {
  panel: Panel;
  part: Part | null;
  class: string;
}) {
  if (!part || panel.isEmpty) return <i {...attributes} hidden />; // nothing has a place in words
  const { u, v, wide, high } = part;
  const style = zoomed(panel.state, u - wide / 2, v - high / 2, wide, high);
  return <i {...attributes} style={style} />;
}

/** Where a part of the pictures is, as they are zoomed. */
export function zoomed({ values }: State, left: number, top: number, wide = 0, high = 0) {
  const { k, x, y } = values.zoom;
  const [from, down, width, height] = [left - x, top - y, wide, high].map((share) =>
    `${100 * k * share}%`
  );
  return { left: from, top: down, width, height };
}

/** Draw a picture as it is. */
export function putPicture(
  canvas: HTMLCanvasElement,
  picture: { pixels: Uint8ClampedArray<ArrayBuffer>; width: number; height: number },
) {
  put(canvas, picture.pixels, picture.width, picture.height);
}
