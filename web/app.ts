// Puts the parts together: state and data in, one drawing a frame out.

import { Card } from "./card.ts";
import { Colours } from "./colours.ts";
import { setAttribute, setText, sure, visible } from "./dom.ts";
import { slide } from "./heading.ts";
import { History, listenToUndo } from "./history.ts";
import { Heatmaps, noGradient, targetOf, wayTo } from "./heatmaps.ts";
import { isGoing, isHere, Rankings } from "./here.ts";
import { objectId } from "./objectId.ts";
import { listenToKeys } from "./keyboard.ts";
import { Layout } from "./layout.ts";
import { paint, toLevels } from "./levels.ts";
import { NetworkMap } from "./map.ts";
import { mapSize, short } from "./numbers.ts";
import { showPointed, valueOf } from "./tooltip.ts";
import { positionIn, State } from "./state.ts";
import { Tools } from "./tools.ts";
import { Weights } from "./weights.ts";
import { Why } from "./why.ts";
import type { Layer } from "./layer.ts";
import type { Panel } from "./panel.ts";
import type { Source } from "./source.ts";
import type { Range } from "./levels.ts";
import type { Settings, Values } from "./state.ts";

/** The explorer in the browser. */
export class App {
  state: State;
  data: Layer | null = null;
  listed: unknown = null; // the facts whose names are in the search fields
  used: Map<string, number> = new Map(); // by layer: the channel that was shown last
  stepped = false; // to a layer whose channel is chosen when its data arrives
  frame = 0;
  toFirst = false;
  rank: number | null = null; // of the channel to show when the layer's data arrives
  refused = 0; // how often the kernel was told to be gone
  stopPainting: () => void;
  /** Where the input can be painted over. */
  occlude: ((u: number, v: number) => void) | null = null;
  rankings: Rankings;
  parts: Layout;
  colours: Colours;
  heatmaps: Heatmaps;
  tools: Tools;
  why: Why;
  weights: Weights;
  network: NetworkMap;
  card: Card;
  history = new History(this);
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
    this.stopPainting = () => {};
    this.rankings = new Rankings(source);
    this.parts = new Layout(root, source, this.state, {
      set: (changes) => this.set(changes),
      target: (number, minus) => this.toTarget(number, minus),
      written: (text, minus) => this.toWritten(text, minus),
      position: (place) => this.toPosition(place),
      order: (name) => this.toOrder(name),
      again: () => this.schedule(),
      channels: () => this.ranking.order,
    });
    this.colours = new Colours(root, source);
    this.heatmaps = new Heatmaps(this.parts, source, this.colours);
    this.parts.heading.work.append(this.rankings.words);
    this.tools = new Tools(this);
    this.why = new Why(this);
    this.weights = new Weights(this, (...given) => this.why.picture(...given));
    this.network = new NetworkMap(this);
    this.card = new Card(this);
    this.addDrawers();
    this.state.onChange((changed) => {
      if (changed.has("layer") || changed.has("normalize") || changed.has("cmap")) {
        this.state.set({ ends: null, slopeEnds: null });
      }
      this.schedule();
    });
    this.again = (now: boolean = false) => (now ? this.drawNow() : this.schedule());
    source.listeners.add(this.again);
    const { signal } = this.ended;
    matchMedia("(prefers-color-scheme: dark)").addEventListener(
      "change",
      () => this.schedule(),
      { signal },
    );
    for (const move of ["pointerdown", "wheel", "keydown"]) {
      const left = () => {
        this.parts.drawers.fresh = false;
      };
      addEventListener(move, left, { capture: true, passive: true, signal });
    }
    listenToUndo(keys, root, this.history, signal);
    // As soon as it is on the page: no frame is drawn in another theme's colours.
    const arrival = new ResizeObserver(() => {
      arrival.disconnect();
      this.drawNow();
    });
    arrival.observe(root);
    const meant = (target: HTMLElement, key: string) => this.meant(target, key);
    listenToKeys(keys, this.steps(), meant, signal);
    this.draw();
  }

  /** The tabs below the pictures, in their order. */
  addDrawers() {
    const { drawers, editing, otherPictures, strip } = this.parts;
    drawers.add(
      "why",
      "Why this value?",
      "why the value at the chosen position is what it is (key w)",
      this.why.root,
      (open) => this.why.toggled(open),
    );
    drawers.add(
      "weights",
      "Weights",
      "the kernels of this layer",
      this.weights.root,
      (open) => this.weights.toggled(open),
    );
    drawers.add(
      "map",
      "Map",
      "the network as a map, its branches and skips (key m)",
      this.network.root,
      (open) => this.network.toggled(open),
    );
    drawers.add(
      "edit",
      "Edit",
      "scale a channel, switch it off, paint on the input",
      editing,
      (open) => open || this.stopPainting(),
    );
    drawers.add(
      "pictures",
      "Pictures",
      "another input; the output where it is a picture",
      otherPictures,
      () => this.schedule(),
    );
    drawers.add(
      "heatmaps",
      "Heatmaps of all layers",
      "the heatmaps of all layers (key a)",
      strip.root,
    );
    drawers.add(
      "code",
      "Code",
      "this view without hookviz, as PyTorch code",
      this.tools.codeRoot,
      (open) => this.tools.showCode(open),
    );
    this.offerDrawers(null);
    this.reopen();
  }

  /** Open the drawer of the previous drawing: putting two views side by side draws them again. */
  reopen() {
    this.offerDrawers(this.data);
    this.parts.drawers.go(this.at.all_layers ? "heatmaps" : (this.source.opened ?? ""));
  }

  offerDrawers(data: Layer | null) {
    const { facts, source, parts } = this;
    const { drawers } = parts;
    const reasons = Boolean(source.why) && !data?.header.query; // an attention head has no terms
    const holds = (what: "answers" | "weights") => source.holds?.(what) ?? true; // a page may have none
    drawers.offer("why", reasons && holds("answers"));
    drawers.offer("weights", reasons && holds("weights"));
    drawers.offer("map", Boolean(source.map));
    drawers.offer("edit", source.live);
    drawers.rename("edit", facts.edits?.length ? `Edit (${facts.edits.length})` : "Edit");
    const given = [...parts.otherPictures.children];
    drawers.offer("pictures", given.some((each) => each instanceof HTMLElement && !each.hidden));
    drawers.offer("heatmaps", facts.layers.length > 1 && facts.choices.heatmap.length > 0);
    drawers.offer("code", Boolean(source.code));
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
    if ("layer" in changes && changes.layer !== this.at.layer && this.data) {
      const sorted = this.at.order !== "similarity" && this.ranking.name !== "index";
      this.rank = sorted ? (this.rank ?? this.position) : null;
      this.stepped = !sorted && !("channel" in changes);
    }
    this.state.set(changes);
  }

  /** To a channel that was shown before. */
  toChannel(layer: string, channel: number, targetClass: number | null) {
    this.rank = null;
    this.stepped = false;
    this.state.set({ layer, channel, targetClass });
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
    const box = this.parts.boxes.boxes[number];
    if (box) return this.toWritten(box.target, minus);
    if (minus && this.source.write) return this.toWritten(String(number), true);
    this.state.set({ targetClass: number });
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
    const { order } = this.ranking;
    this.state.set({ channel: order[Math.min(Math.max(position, 0), order.length - 1)] });
  }

  /**
   * The first by another order is shown, once the layer is here; what is lost without a channel may
   * have to be found first.
   */
  toOrder(order: string) {
    const data = this.source.layer(this.at);
    if (order === "score drop" && this.source.live && data && !data.arrays.ablation_scores) {
      return this.parts.ablation.begin();
    }
    if (this.parts.ablation.work) this.parts.ablation.stop("");
    const reference = order === "similarity" && order !== this.at.order
      ? { reference_channel: this.at.channel }
      : {};
    const ranking = data && this.rankings.of(data, { ...this.at, order, ...reference });
    this.toFirst = !ranking || isGoing(ranking);
    const known = ranking && order !== "index" && ranking.name !== "index";
    this.state.set(
      known ? { order, ...reference, channel: Number(ranking.order[0]) } : { order, ...reference },
    );
  }

  /** The first channel at the chosen place, or else where the pointer is. */
  best() {
    const { spot, values } = this.state;
    if (!values.place && spot) this.state.set({ place: [spot.v, spot.u] });
    this.toOrder(isHere(values.order) ? values.order : "contrast");
  }

  /** The channels most like the shown one. */
  alike() {
    if (this.at.order === "similarity") this.state.set({ reference_channel: this.at.channel });
    else this.toOrder("similarity");
  }

  toLayer(by: number) {
    const { layers } = this.facts;
    const now = layers.findIndex((each) => each.name === this.at.layer);
    const next = layers[Math.min(Math.max(now + by, 0), layers.length - 1)];
    this.set({ layer: sure(next).name });
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
      ...this.tools.keys(),
      b: () => this.best(),
      l: () => this.alike(),
      t: () => this.data && this.state.set({ channel: this.data.strongest ?? this.at.channel }),
      w: () => this.parts.drawers.toggle("why"),
      m: () => this.network.toggleByKey(),
      a: () => this.parts.drawers.toggle("heatmaps"),
      "/": () => this.parts.heading.search(true),
      LayerHome: () => this.toLayer(-Infinity),
      LayerEnd: () => this.toLayer(Infinity),
      Escape: () => this.state.set({ place: null, hover: null }),
    };
  }

  /** What a key means where the focus is; "" is left to the page. */
  meant(target: HTMLElement, key: string) {
    const inside = this.root.contains(target);
    if (!inside && !(target instanceof HTMLBodyElement)) return "";
    if (target instanceof HTMLSelectElement) return "";
    const range = target instanceof HTMLInputElement && target.type === "range";
    if (target instanceof HTMLInputElement && !range) return "";
    const ofLayers = target === this.parts.layers || target === this.parts.ribbon.cells;
    if (range && !ofLayers && target !== this.parts.heading.channel) return "";
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
    const at = this.state.spot ?? { u: 0.5, v: 0.5 };
    const inside = (share: number) => Math.min(Math.max(share, 0), 1 - 1e-9);
    this.state.set({
      hover: null,
      place: [inside(at.v + down / height), inside(at.u + right / width)],
    });
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
  }

  draw(): void {
    this.frame = 0;
    this.colours.look();
    const { facts, at, source } = this;
    const data = source.layer(at);
    const waiting = !data;
    this.root.classList.toggle("hv-waiting", waiting);
    if (data) {
      this.data = data;
      const going = isGoing(this.ranking);
      if (this.toFirst && !going) {
        this.toFirst = false;
        this.toOrder(at.order);
        return this.draw();
      }
      if (this.rank !== null && !going) {
        const { order, name } = this.ranking;
        const channel = Number(order[Math.min(this.rank, order.length - 1)]);
        this.rank = null;
        if (name !== "index" && channel !== at.channel) return this.state.set({ channel });
      }
      if (this.stepped) {
        this.stepped = false;
        const channel = this.channelOf(data);
        if (channel !== at.channel) return this.state.set({ channel });
      }
      if (at.channel >= data.count) return this.state.set({ channel: data.count - 1 });
      this.used.set(data.header.layer, at.channel);
    }
    this.top(waiting);
    this.network.show();
    if (!this.data || (waiting && this.data.header.layer !== at.layer)) return undefined;
    const shown = this.data;
    const { ranking } = this;
    this.parts.heading.show(shown.header.counts, at, this.position, ranking.name);
    this.rankings.show(ranking);
    this.parts.ablation.show(shown);
    visible(this.parts.heading.shownAfter, source.live && !shown.header.query);
    if (source.live) this.parts.edits.show(facts.edits, at, facts.run_names, shown.word);
    this.drawMaps(shown);
    this.heatmaps.show(shown, at, this.drawInput(shown));
    this.parts.boxes.show();
    this.parts.output.show(this.colours);
    this.parts.pair.show(this.colours);
    this.parts.sides.show(at, source.picture(shown.header.place), this.colours);
    this.heatmaps.strip(shown, at);
    showPointed(this, shown);
    this.card.show(shown);
    this.why.show();
    this.weights.show();
    this.offerDrawers(shown);
    const key = `${objectId(shown)} ${at.channel} ${facts.target.name}`;
    this.parts.readings.show(shown, at.channel, key);
    this.parts.readings.note(this.notes(shown));
    if (!waiting) this.history.record();
    source.prefetch(at, this.neighbours());
    return undefined;
  }

  top(waiting: boolean) {
    const { facts, at } = this;
    const layers = facts.layers;
    setText(this.parts.gone, this.source.gone ?? "");
    visible(this.parts.gone, Boolean(this.source.gone));
    const { refused = 0 } = this.source;
    if (refused !== this.refused) {
      this.refused = refused;
      this.parts.gone.scrollIntoView({ block: "nearest" });
      this.parts.gone.animate([{ opacity: 0.2 }, { opacity: 1 }], 600);
    }
    setText(this.parts.title, facts.model);
    setText(this.parts.said, facts.note ?? "");
    visible(this.parts.factsLine, !facts.note);
    setText(this.parts.factsLine, facts.summary.join(" · "));
    setAttribute(this.parts.factsLine, "title", facts.summary.join(" · "));
    const { text, kind, details, layer } = facts.verdict;
    const { chip } = this.parts;
    visible(chip.root, text !== "");
    setText(chip.button, text);
    setAttribute(chip.button, "data-kind", kind);
    setAttribute(chip.button, "title", details || text);
    setText(this.parts.details, [text, details].filter(Boolean).join(". "));
    setText(this.parts.toTrouble, `go to ${layer || "(model)"}`);
    visible(this.parts.toTrouble, layer !== null);
    const target = targetOf(this.source, at);
    const what = this.source.live ? "show its gradient and heatmaps" : "show its Grad-CAM";
    const wanted = this.source.wanted ?? null;
    const asked = { number: wanted, name: facts.classes.names[wanted ?? -1] ?? `class ${wanted}` };
    const { boxes } = this.parts;
    const box = boxes.bars.find(({ number }) =>
      boxes.boxes[number]?.target === facts.target.written
    );
    const scored = this.source.write
      ? "its score as the target"
      : "making it the target needs the notebook";
    if (boxes.bars.length) this.parts.predictions.show(boxes.bars, box ?? target, scored);
    else this.parts.predictions.show(facts.predictions, wanted === null ? target : asked, what);
    const dense = facts.answer && (facts.target.name !== "nothing" || this.source.write); // the field takes a target
    const maps = Boolean(facts.answer?.maps.length && this.source.answer);
    visible(
      this.parts.answers,
      facts.predictions.length > 0 || facts.classes.count > 0 || boxes.bars.length > 0 ||
        Boolean(dense) || maps,
    );
    const written = Boolean(this.source.write) && facts.classes.count === 0;
    visible(this.parts.anyClass.root, facts.classes.count > facts.predictions.length || written);
    setAttribute(
      this.parts.anyClass.input,
      "placeholder",
      written
        ? "target: output[…]"
        : this.source.write
        ? "another class or output …"
        : "another class …",
    );
    visible(this.parts.fromOutput, maps);
    setText(
      this.parts.fromOutput,
      this.source.write ? "choose a target in the output …" : "show the output …",
    );
    visible(this.parts.predicted, facts.predictions.length > 0 || boxes.bars.length > 0);
    this.lists();
    this.parts.ribbon.show(layers, at.layer, at.health, this.colours.palette("viridis"));
    const place = layers.findIndex((each) => each.name === at.layer);
    const said = `${at.layer || "(model)"}, layer ${place + 1} of ${layers.length}`;
    slide(this.parts.layers, layers.length, place, said);
    visible(this.parts.layers, layers.length > 1);
    this.parts.whole.style.setProperty("--count", String(layers.length));
    this.parts.heading.layer(
      layers[place],
      `${place + 1} of ${layers.length}`,
      waiting ? (this.source.waiting ?? "on its way …") : "",
    );
  }

  /** What can be found by typing. */
  lists() {
    const { facts } = this;
    if (this.listed === facts) return;
    this.listed = facts;
    this.parts.heading.find.items = facts.layers.map((each) => ({
      key: each.name,
      name: each.name || "(model)",
      more: `${each.kind} ${each.text.replace(/, [\d,]+ parameters$/, "")} · ${each.size}`,
    }));
    const { count, names } = facts.classes;
    this.parts.anyClass.items = Array.from({ length: count }, (_, number) => ({
      key: String(number),
      name: names[number] ?? `class ${number}`,
      more: String(number),
    }));
  }

  drawMaps(data: Layer) {
    const { at, colours, facts } = this;
    const { channel, normalize, ends, slopeEnds } = at;
    const { layer, size, signed, magnitudes, which } = data.header;
    const where = objectId(data); // what came for another run is another object
    const diverging = at.cmap === "auto" && signed;
    const name = at.cmap === "auto" ? colours.automatic(diverging) : at.cmap;
    const palette = colours.palette(name);
    const words = `${data.word} ${channel} of ${data.count} of layer ${layer || "(model)"}`;
    const seen = data.header.query ? `, query: ${data.header.query}` : "";
    const whole = { alt: `${words}, a map of ${mapSize(size)}${seen}, in ${facts.model}`, size };
    const range = data.ranges("maps", normalize, diverging);
    const own = ends ? range.map((): Range => ({ ...ends, precision: "double" })) : range;
    const key = `${where} ${normalize} ${name} ${ends?.low} ${ends?.high}`;
    const still = data.still[channel] ?? "";
    this.parts.map.tell(
      still && (still === "silent" ? "zero everywhere" : "the same everywhere"),
      true,
    );
    const side = [this.side(data), data.header.shown_after].filter(Boolean).join(", ");
    this.parts.map.title(`${data.word} ${channel}${magnitudes}${which}`, side, whole.alt);
    this.one(this.parts.map, data, "maps", sure(own[channel]), palette, `${key} ${channel}`);
    this.parts.bars.map.show(sure(range[channel]), ends, palette, name);
    this.parts.colourMenus.show(at);
    const { ranking } = this;
    const by = ranking.name === "index" ? "" : " in this order";
    this.parts.mosaic.show(data, ranking, this.position, own, palette, `${key} ${ranking.key}`, by);
    const slope = facts.target.name === "nothing" ? "gradient" : `gradient of ${facts.target.name}`;
    this.parts.slope.title(slope, null, `${slope}: ${words}`);
    visible(this.parts.bars.slope.root, data.graded);
    const none = data.graded ? "" : noGradient(facts);
    this.parts.slope.tell(none, false, wayTo(this.source, data, none));
    if (!data.graded) return undefined;
    const slopes = sure(data.ranges("gradients", normalize, true)[channel]);
    const robust = normalize === "channel" ? data.robust(channel, slopes) : null;
    const typed: Range | null = slopeEnds ? { ...slopeEnds, precision: "double" } : null;
    const chosen = typed ?? robust ?? slopes;
    this.parts.slope.tell(facts.flat[data.arrays.flat?.values[channel] ?? 0] ?? "", true);
    setText(this.parts.slope.side, robust && !typed ? `largest ${short(slopes.high)}` : "");
    const dark = colours.automatic(true);
    const slopeKey = `${where} ${normalize} ${dark} ${channel} ${chosen.low} ${chosen.high}`;
    this.one(this.parts.slope, data, "gradients", chosen, colours.palette(dark), slopeKey);
    this.parts.bars.slope.show(slopes, slopeEnds, colours.palette(dark), dark, robust);
    return undefined;
  }

  one(
    panel: Panel,
    data: Layer,
    which: "maps" | "gradients",
    range: Range,
    palette: Uint32Array,
    key: string,
  ) {
    const numbers = data.arrays[which]!;
    const [, height, width] = numbers.shape as [number, number, number];
    panel.draw(key, () => {
      const levels = toLevels(data.map(which, this.at.channel), range);
      paint(panel.canvas, levels, width, height, palette);
    });
    panel.place();
  }

  side(data: Layer) {
    const { query } = data.header;
    return query ? `${this.averaging(data)}, query: ${query}` : this.averaging(data);
  }

  averaging(data: Layer) {
    const { size } = data.header;
    const same = size[0] === data.height && size[1] === data.width;
    return same ? mapSize(size) : `${mapSize(size)} → ${mapSize([data.height, data.width])}`;
  }

  /** The caption of the input, and its picture: null where there is none. */
  drawInput(data: Layer) {
    const picture = this.source.picture(data.header.place);
    visible(this.parts.boxes.root, Boolean(picture));
    if (picture) {
      this.root.style.setProperty(
        "--ratio",
        String(Math.min(Math.max(picture.height / picture.width, 0.3), 1.4)),
      );
    }
    return this.parts.caption.show(picture, this.at.fed, this.facts.transform);
  }

  /** Value and gradient at a position, in words. */
  valueAt(data: Layer, row: number, column: number) {
    const gradient = data.arrays.gradient_numbers
      ? `, gradient ${valueOf(this, data, "gradients", row, column)}`
      : "";
    return `value ${valueOf(this, data, "maps", row, column)}${gradient}`;
  }

  notes(data: Layer) {
    const { facts, at } = this;
    const beside = data.beside(at.channel);
    const parts = data.header.parts
      ? ["This layer ran on parts of the input: map, heatmap and positions are those of one part."]
      : [];
    const none = data.header.no_picture ? [data.header.no_picture] : [];
    const own = [...none, ...parts, ...(beside ? [beside] : []), ...(data.header.notes ?? [])];
    const other = !this.source.live && at.targetClass !== null &&
      at.targetClass !== facts.target.number;
    const targets = other ? [`Gradients in this page are of ${facts.target.name}.`] : [];
    const heat = [this.heatmaps.note, this.heatmaps.sizes].filter(Boolean);
    const doubt = facts.transform?.doubt ? [facts.transform.doubt] : [];
    const { opened } = facts;
    const here = opened?.layer === at.layer && opened.channel === at.channel ? [opened.words] : [];
    return [...heat, ...targets, ...doubt, ...own, ...here, ...(facts.notes ?? [])];
  }

  /** The layers that may be wanted next. */
  neighbours() {
    const names = this.facts.layers.map((each) => each.name);
    const now = names.indexOf(this.at.layer);
    return [now + 1, now - 1, now + 2].flatMap((place) => names[place] ?? []);
  }
}
