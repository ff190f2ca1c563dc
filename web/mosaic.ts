// All channels as tiles, as large as fit; what does not fit is on the next page.

import { el, setAttribute, setText, visible } from "./dom.ts";
import { toLevels } from "./levels.ts";
import { ImageLayer } from "./imageLayer.ts";
import type { Layer } from "./layer.ts";
import type { Range } from "./levels.ts";
import type { Ranking } from "./here.ts";

interface Grid {
  columns: number;
  rows: number;
  width: number;
  height: number;
}

interface Tile {
  root: HTMLElement;
  number: HTMLElement;
  score: HTMLElement; // a bar
}

const LEAST_TILE = 36; // a tile's side, in pixels of the page
const MOST_TILE = 240;
const NUMBERED = 64; // smaller tiles have no number, which would hide them; the title has it
const SPACE = 4;

/** The mosaic; `onChoose` gets a channel number. */
export class Mosaic {
  label = el("span", { class: "hv-label" });
  brief = el("span", { class: "hv-label hv-brief", "aria-hidden": "true" }); // for narrow views
  pages = el("span", { class: "hv-dim hv-pages" });
  back = el("button", { class: "hv-turn", "aria-label": "previous page" }, "‹");
  forth = el("button", { class: "hv-turn", "aria-label": "next page" }, "›");
  side: HTMLSpanElement;
  head: HTMLDivElement;
  grid = el("div", {
    class: "hv-tiles",
    tabindex: 0,
    role: "listbox",
    "aria-label": "all channels",
  });
  root: HTMLDivElement;
  sheet = new ImageLayer();
  tiles: Tile[] = [];
  page = 0;
  count = 1; // of pages
  size = 1; // tiles on a page
  shown = -1; // the position that the page was chosen for
  drawn = "";
  room = { width: 0, height: 0 }; // measured when it changes: each reading would force a layout
  onPage: () => void;
  chosen: HTMLElement | undefined;

  constructor(public onChoose: (channel: number) => void) {
    this.side = el("span", { class: "hv-turns" }, this.pages, this.back, this.forth);
    this.head = el("div", { class: "hv-cap" }, this.label, this.brief, this.side);
    this.root = el("div", { class: "hv-mosaic" }, this.head, this.grid);
    new ResizeObserver(([entry]) => {
      if (entry) this.room = entry.contentRect;
      this.onPage();
    }).observe(this.grid);
    this.onPage = (): void => {};
    this.back.addEventListener("click", () => this.turn(-1));
    this.forth.addEventListener("click", () => this.turn(1));
    this.grid.addEventListener("click", (event: MouseEvent) => {
      const tile = (event.target as HTMLElement).closest(".hv-tile");
      if (tile instanceof HTMLElement) this.onChoose(Number(tile.dataset.channel));
    });
  }

  turn(by: number) {
    this.page = Math.min(Math.max(this.page + by, 0), this.count - 1);
    this.onPage();
  }

  /**
   * @param key All that the colours depend on.
   * @param by What the order is by.
   */
  show(
    data: Layer,
    ranking: Ranking,
    position: number,
    ranges: Range[],
    palette: Uint32Array,
    key: string,
    by: string,
  ) {
    const { room } = this;
    if (room.width < LEAST_TILE) return; // not on the page yet
    const ratio = data.height === 1 && data.width > 1 ? 1 / 6 : data.height / data.width;
    const fit = layout(data.count, ratio, room.width, room.height);
    const size = Math.max(1, fit.columns * fit.rows);
    if (position !== this.shown || size !== this.size) this.page = Math.floor(position / size);
    this.size = size;
    this.count = Math.ceil(data.count / size);
    this.shown = position;
    this.page = Math.min(this.page, this.count - 1);
    // The last page is as full as the others.
    const first = Math.max(0, Math.min(this.page * this.size, data.count - this.size));
    const last = Math.min(first + this.size, data.count);
    const now =
      `${key} ${first} ${last} ${fit.columns} ${fit.width} ${globalThis.devicePixelRatio}`;
    if (now !== this.drawn) {
      this.drawn = now;
      this.grid.classList.toggle("hv-small", fit.width < NUMBERED);
      this.grid.style.setProperty("--columns", String(fit.columns));
      this.grid.style.setProperty("--wide", `${fit.width}px`);
      this.grid.style.setProperty("--high", `${fit.height}px`);
      const used = Math.ceil((last - first) / fit.columns) * (fit.height + SPACE);
      this.root.style.setProperty("--unused", String(Math.max(0, Math.floor(room.height - used))));
      this.fill(last - first);
      this.sheet.begin({ ...fit, space: SPACE }, last - first);
      for (let place = first; place < last; place++) {
        this.draw(place - first, data, ranking.order[place], ranges, palette, fit, ranking);
      }
    }
    this.choose(position >= first && position < last ? position - first : Infinity);
    this.words(data, first, last, by);
  }

  /** @param count The number of tiles. */
  fill(count: number) {
    while (this.tiles.length < count) {
      const number = el("i", { class: "hv-number" });
      const score = el("u", { class: "hv-drop" });
      const root = el("div", { class: "hv-tile", role: "option" }, number, score);
      this.tiles.push({ root, number, score });
    }
    const shown = this.tiles.slice(0, count).map((tile) => tile.root);
    if (this.grid.children.length !== count + 1) {
      this.grid.replaceChildren(this.sheet.canvas, ...shown);
    }
  }

  /**
   * @param place On the page.
   * @param ranking Its scores are bars under the tiles.
   */
  draw(
    place: number,
    data: Layer,
    channel: number,
    ranges: Range[],
    palette: Uint32Array,
    fit: Grid,
    ranking: Ranking,
  ) {
    const tile = this.tiles[place];
    const device = fit.width * (globalThis.devicePixelRatio || 1);
    const factor = Math.max(1, Math.floor(data.width / device));
    const { values, height, width } = data.small(factor, channel);
    this.sheet.draw(place, toLevels(values, ranges[channel]), width, height, palette);
    tile.root.dataset.channel = String(channel);
    const scores = ranking.scores ?? data.arrays.ablation_scores?.values;
    visible(tile.score, Boolean(scores));
    if (scores) {
      const of = ranking.scores ? `score ${ranking.key}` : "ablation score";
      const most = data.once(
        `most ${of}`,
        () => Math.max(0, ...Array.from(scores, Math.abs).filter(Number.isFinite)),
      );
      const share = most ? Math.min(Math.abs(scores[channel]) / most, 1) : 0;
      tile.score.style.width = `${100 * share || 0}%`;
      tile.score.classList.toggle("hv-gain", scores[channel] < 0);
    }
    const still = data.still[channel];
    const said = still && `${still}: ${still === "silent" ? "zero" : "the same"} everywhere`;
    tile.root.classList.toggle("hv-silent", Boolean(still));
    setAttribute(tile.root, "aria-label", `channel ${channel}${said && `, ${said}`}`);
    setAttribute(tile.root, "title", `channel ${channel}${said && `, ${said}`}`);
    setText(tile.number, String(channel));
  }

  /** @param place Of a tile on the page; one beyond it for none. */
  choose(place: number) {
    const tile = this.tiles[place]?.root;
    if (tile === this.chosen) return;
    const mark = (root: HTMLElement | undefined, on: boolean) => {
      root?.classList.toggle("hv-on", on);
      root?.setAttribute("aria-selected", String(on));
    };
    mark(this.chosen, false);
    mark(tile, true);
    this.chosen = tile;
  }

  words(data: Layer, first: number, last: number, by: string) {
    const all = last - first === data.count; // else ranks, or the channels' own numbers, from 0
    const crossed = ["silent", "constant"].flatMap((word) => {
      const count = data.still.filter((each) => each === word).length;
      return count ? [`${count} ${word}`] : [];
    });
    const which = all
      ? `all ${data.count}`
      : by
      ? `${first + 1}–${last} of ${data.count}`
      : `${first}–${last - 1} of ${data.count}`;
    const channels = `${data.count === 1 ? `the ${data.word}` : `${which} ${data.word}s`}${by}`;
    const said = [channels, ...crossed].join(", ");
    setText(this.label, said);
    setText(this.brief, which); // without the word, which numbers above 1000 leave no room for
    for (const each of [this.label, this.brief]) setAttribute(each, "title", said);
    this.side.hidden = this.count === 1;
    this.head.classList.toggle("hv-turned", this.count > 1);
    setText(this.pages, `page ${this.page + 1} of ${this.count}`);
    this.back.disabled = this.page === 0;
    this.forth.disabled = this.page === this.count - 1;
  }
}

/**
 * The largest tiles with which all channels fit into a room; or the least size, if they do not.
 * @param ratio Height by width of a tile.
 */
export function layout(count: number, ratio: number, width: number, height: number): Grid {
  const grid = (side: number) => {
    const columns = Math.max(1, Math.floor((width + SPACE) / (side + SPACE)));
    const rows = Math.max(1, Math.floor((height + SPACE) / (side * ratio + SPACE)));
    return { columns, rows, width: side, height: side * ratio };
  };
  const least = ratio < 0.5 ? 3 * LEAST_TILE : LEAST_TILE;
  let side = Math.min(ratio < 0.5 ? 3 * MOST_TILE : MOST_TILE, width);
  while (side > least && grid(side).columns * grid(side).rows < count) side -= 1;
  const found = grid(side);
  // The width is used up: tiles grow until as many columns fill it.
  const columns = Math.min(found.columns, count);
  if (columns === found.columns) {
    const grown = (width + SPACE) / columns - SPACE - 0.01;
    const rows = Math.max(1, Math.floor((height + SPACE) / (grown * ratio + SPACE)));
    if (rows * columns >= count || count > found.columns * found.rows) {
      return { columns, rows, width: grown, height: grown * ratio };
    }
  }
  return { ...found, columns };
}
