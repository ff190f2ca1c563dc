// Puts the parts together: state and data in, one drawing a frame out.

import { h, render } from "preact";
import { Ablation } from "./ablation.tsx";
import { asReceived } from "./captions.tsx";
import { Card } from "./card.tsx";
import { Colours } from "./colours.ts";
import { afterPaint, sure } from "./dom.ts";
import { Drawers } from "./drawers.tsx";
import { drawersOf, Face } from "./face.tsx";
import { Flip } from "./flip.tsx";
import { nameOf } from "./heading.tsx";
import { Heatmaps, noGradient, wayTo } from "./heatmaps.ts";
import { isGoing, isHere, Rankings } from "./here.ts";
import { History, listenToUndo } from "./history.ts";
import { listenToKeys } from "./keyboard.ts";
import { paint, toLevels } from "./levels.ts";
import { NetworkMap } from "./map.ts";
import { Mosaic } from "./mosaic.tsx";
import { mapSize, short } from "./numbers.ts";
import { boxesOf, Output } from "./output.tsx";
import { Panel } from "./panel.tsx";
import { positionIn, State } from "./state.ts";
import { followTheme } from "./theme.ts";
import { Tools } from "./tools.tsx";
import { pointed, valueOf } from "./tooltip.ts";
import { Why } from "./why.tsx";
import type { Settings } from "./messages.d.ts";
import type { Bar } from "./colourbar.tsx";
import type { Ranking } from "./here.ts";
import type { Pictures } from "./intake.tsx";
import type { Layer } from "./layer.ts";
import type { Range } from "./levels.ts";
import type { Picture, Source } from "./source.ts";
import type { Values } from "./state.ts";

/** What the pictures show: the previous layer's while the next is on its way. */
interface Shown {
  data: Layer;
  at: Values;
  ranking: Ranking;
  position: number; // of the channel in the ranking
}

/**
 * How the channel is chosen once the layer is here: the first in the order, the layer's own (see
 * `channelOf`), or by rank.
 */
export type Awaited = "first" | "own" | { rank: number };

/** The explorer in the browser. */
export class App {
  state: State;
  data: Layer | null = null;
  shown: Shown | null = null;
  isWaiting = true;
  used: Map<string, number> = new Map(); // by layer: the channel that was shown last
  awaited: Awaited | null = null; // the choice of a channel that has to wait for the layer
  leavesSilence = false; // on a new picture, once its maps are here
  frame = 0;
  width = 0; // of the view: measured when it changes, since each reading would force a layout
  rankings: Rankings;
  colours: Colours;
  heatmaps: Heatmaps;
  tools: Tools;
  why: Why;
  network: NetworkMap;
  card: Card;
  ablation: Ablation;
  flip: Flip;
  output: Output;
  isFinding = false; // whether the field that finds a layer is open
  pictures: Pictures | null = null;
  picture: Picture | null = null; // the input, as it is shown
  bars: { map: Bar | null; slope: Bar | null } = { map: null, slope: null };
  pointed: Array<[string, string]> | null = null; // names and values at the position
  notes: string[] = [];
  parts: {
    drawers: Drawers;
    input: Panel;
    map: Panel;
    slope: Panel;
    mosaic: Mosaic;
  };
  history = new History(this);
  excited = ""; // the channel and layer for which exciting pictures were requested
  ended = new AbortController(); // with it the listeners outside of the view end
  again: (now?: boolean) => void;

  /** @param keys The target whose key events are handled. */
  constructor(
    public root: HTMLElement,
    public source: Source,
    settings: Settings,
    keys: EventTarget,
  ) {
    this.state = new State(settings);
    this.rankings = new Rankings(source);
    this.parts = {
      drawers: new Drawers((closed, opened) => this.drawerChanged(closed, opened)),
      input: new Panel(this.state, "input"),
      map: new Panel(this.state, "activation"),
      slope: new Panel(this.state, "gradient"),
      mosaic: new Mosaic(() => this.schedule()),
    };
    const { input, slope } = this.parts;
    for (const panel of [slope, input]) panel.onWay = (layer) => this.set({ layer });
    this.colours = new Colours(root, source);
    this.heatmaps = new Heatmaps(input, source, this.colours);
    this.output = new Output(this);
    this.tools = new Tools(this);
    this.why = new Why(this);
    this.network = new NetworkMap(this);
    this.card = new Card(this);
    this.ablation = new Ablation(this);
    this.flip = new Flip(this);
    this.state.onChange((changed) => {
      if (changed.has("layer") || changed.has("normalize") || changed.has("cmap")) {
        this.state.set({ ends: null, slopeEnds: null });
      }
      if (changed.has("all_layers")) {
        const isShown = this.parts.drawers.open === "heatmaps";
        if (isShown !== this.at.all_layers) this.parts.drawers.go(isShown ? "" : "heatmaps");
      }
      this.schedule();
    });
    this.again = (now: boolean = false) => (now ? this.drawNow() : this.schedule());
    source.listeners.add(this.again);
    const { signal } = this.ended;
    followTheme(() => {
      this.colours.looked = -Infinity;
      this.schedule();
    }, signal);
    for (const move of ["pointerdown", "wheel", "keydown"]) {
      const followed = (event: Event) => this.parts.drawers.follow(move, event.composedPath()[0]);
      addEventListener(move, followed, { capture: true, passive: true, signal });
    }
    listenToUndo(keys, root, this.history, signal);
    const size = new ResizeObserver(([{ contentRect: { width } }]) => {
      const isFirst = !this.width;
      this.width = width;
      // As soon as it is on the page: no frame is drawn in another theme's colours.
      if (isFirst) this.drawNow();
      else this.schedule();
    });
    size.observe(root);
    signal.addEventListener("abort", () => size.disconnect());
    const meant = (target: HTMLElement, key: string) => this.meant(target, key);
    listenToKeys(keys, this.steps(), meant, signal);
    this.draw();
    this.reopen();
  }

  /** Open the drawer of the previous drawing: putting two views side by side draws them again. */
  reopen() {
    this.offerDrawers();
    this.parts.drawers.go(this.at.all_layers ? "heatmaps" : (this.source.opened ?? ""));
  }

  drawerChanged(closed: string, opened: string) {
    const { source, state } = this;
    if (opened) source.retry?.();
    for (const name of [closed, opened]) {
      if (name === "why") this.why.toggled();
      if (name === "map") this.network.toggled(name === opened);
    }
    if (closed === "edit") this.pictures?.brush.stop();
    source.opened = opened;
    state.set({ all_layers: opened === "heatmaps" });
    this.schedule();
  }

  offerDrawers() {
    this.parts.drawers.offer(drawersOf(this));
  }

  get facts() {
    return this.source.facts;
  }

  get at() {
    return this.state.values;
  }

  /** The explorer's own settings, with the chosen position as row and column. */
  get settings() {
    const { place, layer } = this.at;
    const size = this.data?.header.layer === layer ? this.data.header.size : null;
    return { ...this.state.settings, position: place && size && positionIn(place, size) };
  }

  /** The channels in order, and what they are sorted by. */
  get ranking() {
    return this.rankings.of(sure(this.data), this.at);
  }

  // Where to go

  /**
   * Where another layer comes, sorted channels keep their rank: the best here of one, the best here
   * of the next. Otherwise its channel is chosen once it is here, see `channelOf`.
   */
  set(changes: Partial<Values>) {
    const isStep = "layer" in changes && changes.layer !== this.at.layer;
    // The first of an order that was just chosen is shown at the next layer, too.
    if (isStep && this.data && this.awaited !== "first") {
      const sorted = this.at.order !== "similarity" && this.ranking.name !== "index";
      this.awaited = sorted ? { rank: this.rank } : "own";
    }
    this.state.set(changes);
  }

  /** Show a chosen channel, or a whole view: choices that were made before and still wait are void. */
  goTo(changes: Partial<Values>) {
    this.awaited = null;
    this.leavesSilence = false;
    this.state.set(changes);
  }

  /** Show another picture at the strongest channel if this one, which is not silent now, is so there. */
  meetPicture() {
    this.leavesSilence = this.data?.still[this.at.channel] !== "silent";
  }

  /** The channel of a new layer: the one that was shown there last, or what contributes most. */
  channelOf(data: Layer) {
    return this.used.get(data.header.layer) ?? data.strongest ?? this.at.channel;
  }

  /**
   * @param number Of a class, or of a box.
   * @param minus It is subtracted from the target.
   */
  toTarget(number: number, minus: boolean = false) {
    const box = boxesOf(this.source)[number];
    if (box) return this.toWritten(box.target, minus);
    if (minus && this.source.write) return this.toWritten(String(number), true);
    return this.source.target(number);
  }

  /**
   * A target as it is written in Python.
   * @param minus It is subtracted from the target.
   */
  toWritten(text: string, minus: boolean) {
    const [first] = (this.source.asking ?? this.facts.target.written ?? "").split(" - ");
    this.source.write?.(minus && first && first !== text ? `${first} - ${text}` : text);
  }

  toPosition(position: number) {
    if (!this.data) return;
    const { order, name } = this.ranking;
    const rank = Math.min(Math.max(position, 0), order.length - 1);
    const isComing = this.data.header.layer !== this.at.layer;
    this.goTo({ channel: order[rank] });
    // Until the layer is here, the order is that of the layer before.
    if (isComing && name !== "index") this.awaited = { rank };
  }

  /**
   * The first by another order is shown, once the layer is here; what is lost without a channel may
   * have to be found first.
   */
  toOrder(order: string) {
    const data = this.source.layer(this.at);
    if (order === "score drop" && this.source.live && data && !data.arrays.ablation_scores) {
      return this.ablation.begin();
    }
    if (this.ablation.work) this.ablation.stop("");
    const reference = order === "similarity" && order !== this.at.order
      ? { reference_channel: this.at.channel }
      : {};
    const ranking = data && this.rankings.of(data, { ...this.at, order, ...reference });
    const change = { order, ...reference };
    if (order !== "index" && ranking && ranking.name !== "index") {
      return this.goTo({ ...change, channel: Number(ranking.order[0]) });
    }
    if (order === "index") this.awaited &&= "own";
    else if (!ranking || isGoing(ranking)) this.awaited = "first";
    return this.state.set(change);
  }

  /** The channel that contributes most, in the shown layer or in the one that is on its way. */
  toStrongest() {
    const { data } = this;
    if (data?.header.layer === this.at.layer) {
      return this.goTo({ channel: data.strongest ?? this.at.channel });
    }
    this.used.delete(this.at.layer);
    this.awaited = "own";
  }

  /** The first channel at the chosen place, or else where the pointer is. */
  best() {
    const { spot, values } = this.state;
    if (!values.place) this.state.set({ place: spot });
    this.toOrder(isHere(values.order) ? values.order : "contrast");
  }

  /** The channels most like the shown one. */
  alike() {
    if (this.at.order === "similarity") this.state.set({ reference_channel: this.at.channel });
    else this.toOrder("similarity");
  }

  /** @param isOpen Whether the field that finds a layer is shown. */
  find(isOpen: boolean) {
    this.isFinding = isOpen;
    this.schedule();
  }

  toLayer(by: number) {
    const { layers } = this.facts;
    const now = layers.findIndex((each) => each.name === this.at.layer);
    const next = layers[Math.min(Math.max(now + by, 0), layers.length - 1)];
    this.set({ layer: sure(next).name });
  }

  /** Of the shown channel, or of the one that will be shown. */
  get rank() {
    const { awaited } = this;
    return awaited && typeof awaited === "object" ? awaited.rank : this.position;
  }

  get position() {
    if (!this.data) return 0;
    return Math.max(Array.prototype.indexOf.call(this.ranking.order, this.at.channel), 0);
  }

  steps() {
    const walk = (by: number) => () => this.toPosition(this.position + by);
    const page = (by: number) => () => {
      const first = (this.parts.mosaic.page + by) * this.parts.mosaic.size;
      if (this.data && first >= 0 && first < this.data.count) this.toPosition(first);
    };
    const move = (right: number, down: number) => () => this.moveHover(right, down);
    return {
      ArrowLeft: walk(-1),
      ArrowRight: walk(1),
      ArrowUp: () => this.toLayer(-1),
      ArrowDown: () => this.toLayer(1),
      Home: () => this.toPosition(0),
      End: () => this.toPosition(Infinity),
      PageUp: page(-1),
      PageDown: page(1),
      ShiftArrowLeft: move(-1, 0),
      ShiftArrowRight: move(1, 0),
      ShiftArrowUp: move(0, -1),
      ShiftArrowDown: move(0, 1),
      "Shift?": () => this.tools.open("help"),
      "?": () => this.tools.open("help"),
      b: () => this.best(),
      l: () => this.alike(),
      t: () => this.toStrongest(),
      w: () => this.parts.drawers.toggle("why"),
      m: () => this.network.toggleByKey(),
      a: () => this.parts.drawers.toggle("heatmaps"),
      "/": () => this.find(true),
      LayerHome: () => this.toLayer(-Infinity),
      LayerEnd: () => this.toLayer(Infinity),
      Escape: () => {
        // In full screen the browser takes this key.
        if (this.tools.presents) this.tools.present(false);
        else this.state.set({ place: null, hover: null });
      },
    };
  }

  /** What a key means where the focus is; "" is left to the page. */
  meant(target: HTMLElement, key: string) {
    const inside = this.root.contains(target);
    if (!inside && !(target instanceof HTMLBodyElement)) return "";
    if (target instanceof HTMLSelectElement) return "";
    const range = target instanceof HTMLInputElement && target.type === "range";
    if (target instanceof HTMLInputElement && !range) return "";
    const ofLayers = target.closest(".hv-map-of-layers") !== null;
    if (range && !ofLayers && !target.matches(".hv-channels")) return "";
    if (!ofLayers) return key;
    const turned: Record<string, string> = {
      ArrowLeft: "ArrowUp",
      ArrowRight: "ArrowDown",
      Home: "LayerHome",
      End: "LayerEnd",
    };
    return turned[key] ?? key;
  }

  /** By keyboard: the next value is chosen. */
  moveHover(right: number, down: number) {
    if (!this.data) return;
    const [height, width] = this.data.header.size;
    const [v, u] = this.state.spot ?? [0.5, 0.5];
    const inside = (share: number) => Math.min(Math.max(share, 0), 1 - 1e-9);
    this.state.set({ hover: null, place: [inside(v + down / height), inside(u + right / width)] });
  }

  // What is drawn

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  /** Without waiting for a frame: what is seen at the next one is drawn by then. */
  drawNow() {
    cancelAnimationFrame(this.frame);
    this.draw();
  }

  /** Nothing is drawn any more. */
  end() {
    this.ended.abort();
    this.source.listeners.delete(this.again);
    cancelAnimationFrame(this.frame);
    this.frame = -1;
    render(null, this.root);
  }

  draw(): void {
    this.frame = 0;
    this.colours.look();
    const { at, source } = this;
    const data = source.layer(at);
    this.isWaiting = !data;
    this.root.classList.toggle("hv-waiting", this.isWaiting);
    if (data) {
      this.data = data;
      if (this.corrected(data)) return this.drawNow();
      this.used.set(data.header.layer, at.channel);
    }
    if (this.data && (data || this.data.header.layer === at.layer)) this.look(this.data);
    this.history.record(Boolean(data));
    this.flip.follow();
    this.output.update();
    this.offerDrawers();
    const { focused } = this;
    render(h(Face, { app: this }), this.root);
    if (focused && (!focused.isConnected || focused.closest("[hidden], :disabled"))) {
      this.takeFocus(focused);
    }
    if (this.shown) {
      afterPaint(() => this.frame < 0 || source.prefetch(this.at, this.neighbours()));
    }
  }

  /** The element of the view with the focus; the view may be in a shadow root. */
  get focused() {
    const { activeElement } = this.root.getRootNode() as Document;
    return activeElement && this.root.contains(activeElement) ? activeElement : null;
  }

  /** Keys and undo have to go on after the control that had the focus is gone. */
  takeFocus(before: Element) {
    const { activeElement } = this.root.getRootNode() as Document;
    // A hidden element loses the focus only later.
    if (activeElement && activeElement !== document.body && activeElement !== before) return;
    this.root.querySelector<HTMLElement>(".hv-channels")?.focus({ preventScroll: true });
  }

  /** Make the choices of a channel that had to wait for the layer; returns whether a setting changed. */
  corrected(data: Layer) {
    const { at, awaited } = this;
    if (awaited && (awaited === "own" || !isGoing(this.ranking))) {
      this.awaited = null;
      const { order, name } = this.ranking;
      const isRank = typeof awaited === "object" && name !== "index";
      const channel = isRank
        ? Number(order[Math.min(awaited.rank, order.length - 1)])
        : this.channelOf(data);
      this.state.set({ channel });
      if (awaited === "first") this.toOrder(at.order);
    }
    if (this.leavesSilence) {
      this.leavesSilence = false;
      const { channel } = this.at;
      const isSilent = data.still[channel] === "silent";
      if (isSilent) this.state.set({ channel: data.strongest ?? channel });
    }
    if (this.at.channel >= data.count) this.state.set({ channel: data.count - 1 });
    return this.at !== at;
  }

  /** Bring all that the components show to this layer. */
  look(data: Layer) {
    const { at } = this;
    this.shown = { data, at, ranking: this.ranking, position: this.position };
    this.drawMaps(data);
    this.lookAtInput(data);
    this.heatmaps.strip(data, at);
    this.pointed = pointed(this, data);
    this.notes = this.notesOn(data);
  }

  drawMaps(data: Layer) {
    const { at, colours, facts } = this;
    const { channel, normalize, ends, slopeEnds } = at;
    const { map, slope, mosaic } = this.parts;
    const { ranking, position } = sure(this.shown);
    const { layer, size, signed, magnitudes, which } = data.header;
    const diverging = at.cmap === "auto" && signed;
    const name = at.cmap === "auto" ? colours.automatic(diverging) : at.cmap;
    const palette = colours.palette(name);
    const words = `${data.word} ${channel} of ${data.count} of layer ${nameOf({ name: layer })}`;
    const seen = data.header.query ? `, query: ${data.header.query}` : "";
    const range = data.ranges("maps", normalize, diverging);
    const own = ends ? range.map((): Range => ({ ...ends, precision: "double" })) : range;
    const key = [data, normalize, name, ends];
    const still = data.still[channel] ?? "";
    map.tell(still && (still === "silent" ? "zero everywhere" : "the same everywhere"), true);
    map.label = `${data.word} ${channel}${magnitudes}${which}`;
    map.side = this.side(data);
    map.alt = `${words}, a map of ${mapSize(size)}${seen}, in ${facts.model}`;
    this.one(map, data, "maps", sure(own[channel]), palette, [...key, channel]);
    this.bars.map = { whole: sure(range[channel]), chosen: ends, palette };
    mosaic.show({ data, ranking, position, ranges: own, palette, key: [...key, ranking.key] });
    const of = this.source.gradientsOf ?? facts.target.name;
    slope.label = of === "nothing" ? "gradient" : `gradient of ${of}`;
    slope.alt = `${slope.label}: ${words}`;
    this.bars.slope = null;
    const none = data.graded ? "" : noGradient(this.source);
    slope.tell(none, false, wayTo(this.source, data, none));
    if (!data.graded) return;
    const slopes = sure(data.ranges("gradients", normalize, true)[channel]);
    const robust = normalize === "channel" ? data.robust(channel, slopes) : null;
    const typed: Range | null = slopeEnds ? { ...slopeEnds, precision: "double" } : null;
    const chosen = typed ?? robust ?? slopes;
    slope.tell(facts.flat[data.arrays.flat?.values[channel] ?? 0] ?? "", true);
    slope.side = robust && !typed ? `largest ${short(slopes.high)}` : "";
    const dark = colours.automatic(true);
    const slopeKey = [data, normalize, dark, channel, chosen.low, chosen.high];
    this.one(slope, data, "gradients", chosen, colours.palette(dark), slopeKey);
    this.bars.slope = { whole: slopes, chosen: slopeEnds, palette: colours.palette(dark), robust };
  }

  one(
    panel: Panel,
    data: Layer,
    which: "maps" | "gradients",
    range: Range,
    palette: Uint32Array,
    key: unknown[],
  ) {
    const [, height, width] = data.arrays[which]!.shape;
    const { channel } = this.at;
    panel.draw(key, (canvas) => {
      paint(canvas, toLevels(data.map(which, channel), range), width, height, palette);
    });
  }

  /** The size of the map, that of the picture if it is another, and what else is said of it. */
  side({ height, width, header: { size, query, shown_after } }: Layer) {
    const isWhole = size[0] === height && size[1] === width;
    const drawn = isWhole ? "" : ` → ${mapSize([height, width])}`;
    return [mapSize(size) + drawn, query && `query: ${query}`, shown_after].filter(Boolean)
      .join(", ");
  }

  /** The input, and the heatmap over it. */
  lookAtInput(data: Layer) {
    const { at, source, root } = this;
    const picture = source.picture(data.header.place);
    if (picture) {
      const ratio = Math.min(Math.max(picture.height / picture.width, 0.3), 1.4);
      root.style.setProperty("--ratio", String(ratio));
    }
    const fed = at.fed ? picture?.fed : null;
    this.picture = picture && fed ? asReceived(picture) : picture;
    const alt = fed
      ? `the values that the network receives, ${fed.words}`
      : "the input, as a person sees it";
    this.heatmaps.show(data, at, this.picture, alt);
  }

  /** Value and gradient at a position, in words. */
  valueAt(data: Layer, row: number, column: number) {
    const gradient = data.arrays.gradient_numbers
      ? `, gradient ${valueOf(this, data, "gradients", row, column)}`
      : "";
    return `value ${valueOf(this, data, "maps", row, column)}${gradient}`;
  }

  /** What has to be known about the view. */
  notesOn(data: Layer) {
    const { facts, at } = this;
    const { opened } = facts;
    const isOpened = opened?.layer === at.layer && opened.channel === at.channel &&
      opened.sample === at.sample;
    return [
      this.heatmaps.note,
      this.heatmaps.sizes,
      facts.transform?.doubt,
      data.header.no_picture,
      data.header.parts &&
      "This layer ran on parts of the input: map, heatmap and positions are those of one part.",
      data.beside(at.channel),
      ...(data.header.notes ?? []),
      isOpened && opened.words,
      ...(facts.notes ?? []),
    ].filter((note) => typeof note === "string" && note !== "") as string[];
  }

  /** The layers that may be wanted next. */
  neighbours() {
    const names = this.facts.layers.map((each) => each.name);
    const now = names.indexOf(this.at.layer);
    return [now + 1, now - 1, now + 2].flatMap((place) => names[place] ?? []);
  }
}
