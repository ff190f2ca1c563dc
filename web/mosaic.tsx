// All channels as tiles, as large as fit; what does not fit is on the next page.

import { cloneElement } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Canvas } from "./controls.tsx";
import { contextOf, paint, toLevels } from "./levels.ts";
import { layout, LEAST_TILE, SPACE } from "./tiles.ts";
import type { JSX } from "preact";
import type { Layer } from "./layer.ts";
import type { Range } from "./levels.ts";
import type { Ranking } from "./here.ts";
import type { Grid } from "./tiles.ts";

/** The channels to show. */
interface Shown {
  data: Layer;
  ranking: Ranking;
  /** Of the chosen channel in the ranking. */
  position: number;
  ranges: Range[];
  palette: Uint32Array;
  /** All that the colours depend on. */
  key: unknown[];
}
/** The part of them that is on the page. */
type Page = Shown & { fit: Grid; first: number; last: number };

const NUMBERED = 64; // smaller tiles have no number, which would hide them; the title has it

/** The pages of tiles, and which of them is shown. */
export class Mosaic {
  page = 0;
  count = 1; // of pages
  size = 1; // tiles on a page
  position = -1; // that the page was chosen for
  room = { width: 0, height: 0 }; // measured when it changes: each reading would force a layout
  shown: Page | null = null;

  constructor(public changed: () => void) {}

  turn(by: number) {
    this.page += by;
    this.changed();
  }

  show(shown: Shown) {
    const { room: { width, height } } = this;
    if (width < LEAST_TILE) return; // not on the page yet
    const { data, position } = shown;
    const ratio = data.height === 1 && data.width > 1 ? 1 / 6 : data.height / data.width;
    const fit = layout(data.count, ratio, width, height);
    const size = fit.columns * fit.rows;
    if (position !== this.position || size !== this.size) this.page = Math.floor(position / size);
    [this.position, this.size] = [position, size];
    this.count = Math.ceil(data.count / size);
    this.page = Math.min(Math.max(this.page, 0), this.count - 1);
    // The last page is as full as the others.
    const first = Math.max(0, Math.min(this.page * size, data.count - size));
    this.shown = { ...shown, fit, first, last: Math.min(first + size, data.count) };
  }
}

export function MosaicView({ mosaic, onChoose }: {
  mosaic: Mosaic;
  onChoose: (channel: number) => void;
}) {
  const grid = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const size = new ResizeObserver(([{ contentRect }]) => {
      mosaic.room = contentRect;
      mosaic.changed();
    });
    size.observe(grid.current!);
    return () => size.disconnect();
  }, []);
  const { page, count, shown } = mosaic;
  const { fit, first = 0, last = 0, position = 0 } = shown ?? {};
  const deps = [...shown?.key ?? [], first, last, fit?.columns, fit?.width, devicePixelRatio];
  const tiles = useMemo(() => shown ? tilesOf(shown) : [], deps);
  const rows = fit && Math.ceil((last - first) / fit.columns);
  const unused = fit && mosaic.room.height - Math.ceil(rows! * (fit.height + SPACE));
  const { which, words } = shown ? captionOf(shown) : { which: "", words: "" };
  return (
    <div class="hv-mosaic" style={{ "--unused": Math.max(0, Math.floor(unused ?? 0)) }}>
      <div class={`hv-cap${count > 1 ? " hv-turned" : ""}`}>
        <span class="hv-label" title={words}>{words}</span>
        {/* For narrow views; without the word, which numbers above 1000 leave no room for. */}
        <span class="hv-label hv-brief" title={words} aria-hidden="true">{which}</span>
        <span class="hv-turns" hidden={count === 1}>
          <span class="hv-dim hv-pages">{`page ${page + 1} of ${count}`}</span>
          <button
            type="button"
            class="hv-turn"
            aria-label="previous page"
            disabled={page === 0}
            onClick={() => mosaic.turn(-1)}
          >
            ‹
          </button>
          <button
            type="button"
            class="hv-turn"
            aria-label="next page"
            disabled={page === count - 1}
            onClick={() => mosaic.turn(1)}
          >
            ›
          </button>
        </span>
      </div>
      <div
        ref={grid}
        class={`hv-tiles${fit && fit.width < NUMBERED ? " hv-small" : ""}`}
        style={fit && {
          "--columns": fit.columns,
          "--wide": `${fit.width}px`,
          "--high": `${fit.height}px`,
        }}
        tabIndex={0}
        role="listbox"
        aria-label="all channels"
        onClick={({ target }) => {
          const tile = (target as HTMLElement).closest<HTMLElement>(".hv-tile");
          if (tile) onChoose(Number(tile.dataset.channel));
        }}
      >
        <Canvas
          class="hv-sheet"
          aria-hidden="true"
          paint={(canvas) => shown && paintTiles(canvas, shown)}
          deps={deps}
        />
        {/* The others are the same elements as before, which are not compared again. */}
        {tiles.map((tile, n) =>
          first + n === position
            ? cloneElement(tile, { class: `${tile.props.class} hv-on`, "aria-selected": true })
            : tile
        )}
      </div>
    </div>
  );
}

/** A tile's number and score; the map below it is on the canvas of all. */
function tilesOf({ data, ranking, first, last }: Page): JSX.Element[] {
  const scores = ranking.scores ?? data.arrays.ablation_scores?.values;
  const of = ranking.scores ? `score ${ranking.key}` : "ablation score";
  const most = scores && data.once(
    `most ${of}`,
    () => Math.max(0, ...Array.from(scores, Math.abs).filter(Number.isFinite)),
  );
  return Array.from(ranking.order).slice(first, last).map((channel, n) => {
    const score = scores?.[channel] ?? 0;
    const share = most ? Math.min(Math.abs(score) / most, 1) : 0;
    const still = data.still[channel];
    const said = still && `, ${still}: ${still === "silent" ? "zero" : "the same"} everywhere`;
    return (
      <div
        key={n}
        class={`hv-tile${still ? " hv-silent" : ""}`}
        role="option"
        data-channel={channel}
        aria-label={`channel ${channel}${said}`}
        aria-selected={false}
        title={`channel ${channel}${said}`}
      >
        <i class="hv-number">{channel}</i>
        <u
          class={`hv-drop${score < 0 ? " hv-gain" : ""}`}
          hidden={!scores}
          style={{ width: `${100 * share || 0}%` }}
        />
      </div>
    );
  });
}

/**
 * Draw all tiles on one canvas: to a browser each canvas is a layer, and to put together a hundred
 * of them in each frame takes longer than a frame.
 */
function paintTiles(canvas: HTMLCanvasElement, { data, ranking, fit, first, last, ...look }: Page) {
  const { columns, width, height } = fit;
  const ratio = devicePixelRatio;
  const pixels = (side: number) => Math.round(ratio * side);
  const down = Math.ceil((last - first) / columns);
  canvas.width = pixels(columns * (width + SPACE) - SPACE);
  canvas.height = pixels(down * (height + SPACE) - SPACE);
  canvas.style.width = `${canvas.width / ratio}px`;
  canvas.style.height = `${canvas.height / ratio}px`;
  const context = contextOf(canvas);
  const one = document.createElement("canvas"); // a tile at its own pixels
  const factor = Math.max(1, Math.floor(data.width / (width * ratio)));
  for (let n = 0; n < last - first; n++) {
    const channel = ranking.order[first + n];
    const small = data.small(factor, channel);
    const levels = toLevels(small.values, look.ranges[channel]);
    paint(one, levels, small.width, small.height, look.palette);
    const [left, top] = [
      (n % columns) * (width + SPACE),
      Math.floor(n / columns) * (height + SPACE),
    ];
    const [x, y] = [pixels(left), pixels(top)];
    const [wide, high] = [pixels(left + width) - x, pixels(top + height) - y];
    // With their edges, or smoothly where there are more pixels than fit.
    context.imageSmoothingEnabled = small.width > wide || small.height > high;
    context.drawImage(one, x, y, wide, high);
  }
}

function captionOf({ data: { count, word, still }, ranking, first, last }: Page) {
  const by = ranking.name === "index" ? "" : " in this order";
  // The channels' own numbers, from 0, or ranks.
  const part = by ? `${first + 1}–${last}` : `${first}–${last - 1}`;
  const which = last - first === count ? `all ${count}` : `${part} of ${count}`;
  const crossed = ["silent", "constant"].flatMap((kind) => {
    const many = still.filter((each) => each === kind).length;
    return many ? [`${many} ${kind}`] : [];
  });
  const channels = `${count === 1 ? `the ${word}` : `${which} ${word}s`}${by}`;
  return { which, words: [channels, ...crossed].join(", ") };
}
