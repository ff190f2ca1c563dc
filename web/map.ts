// The map of the network: boxes for layers and modules, opened and closed; a click leads to a layer.

import { el, setAttribute, setText, sure } from "./dom.ts";
import { contextOf, paint } from "./levels.ts";
import { lifted, openedAtFirst, reduced, treeOf, visibleUnits } from "./mapGraph.ts";
import { placed } from "./mapLayout.ts";
import { middle, times } from "./numbers.ts";
import { objectId } from "./objectId.ts";
import { putPicture } from "./panel.tsx";
import { colour, measureOf, scaleOf } from "./ribbon.tsx";
import type { Unit } from "./mapGraph.ts";
import type { Box, Dagre, Frame, Path, Placed } from "./mapLayout.ts";
import type { NetworkGraph, Refused } from "./source.ts";
import type { App } from "./app.ts";
import type { LayerFacts } from "./messages.d.ts";

interface Drawn {
  unit: Unit;
  root: HTMLButtonElement;
  picture: HTMLCanvasElement | null;
  colours: HTMLElement;
}

const AT_FIRST = 22; // boxes at first
const PICTURE = { width: 104, height: 100 };
const PLAIN = { width: 104, height: 50 };
const JOIN = { width: 78, height: 40 };
const WIDEST = 168; // a box, for its words
const MAKING = "the map is being made: the network runs once more; interrupt the kernel to stop";
const DRAG = 4; // pixels; below them it is a click
const LEAST = 0.1; // zoom
const BOLD = "600 11px";
const SMALL = "10px";

/** A drawer; it follows the shown layer while it is open. */
export class NetworkMap {
  zoom = 1;
  /** What the source has sent. */
  found: NetworkGraph | null = null;
  dagre: Dagre | null = null;
  tree: Unit | null = null;
  opened: Set<string> = new Set();
  /** Closed by hand around the shown layer. */
  closed: Set<string> = new Set();
  drawn: Drawn[] = [];
  places: Placed | null = null;
  laid = "";
  width = 0; // of the view: measured when it changes, since each reading would force a layout
  room = 0; // pixels across, when it was laid out
  shape = "";
  /** In which the chosen channel is shown. */
  painted: Drawn | undefined = undefined;
  marked = "";
  near = "";
  focusNext = "";
  wanted = "";
  failed = "";
  stopped = false;
  again = 0; // so that what was stopped is asked once more
  loading = false;
  edges = el("canvas", { class: "hv-net-edges", "aria-hidden": "true" });
  frames = el("div", {});
  boxes = el("div", {});
  sheet: HTMLDivElement;
  view: HTMLDivElement;
  words = el("div", { class: "hv-net-words", role: "status" });
  head: HTMLDivElement;
  root: HTMLDivElement;

  constructor(public app: App) {
    this.sheet = el("div", { class: "hv-net-sheet" }, this.frames, this.edges, this.boxes);
    this.view = el(
      "div",
      { class: "hv-net-view" },
      el("div", { class: "hv-net-size" }, this.sheet),
    );
    const act = (text: string, title: string, on: () => void) => {
      const made = el(
        "button",
        { class: "hv-toggle", type: "button", title, "aria-label": title },
        text,
      );
      made.addEventListener("click", on);
      return made;
    };
    this.head = el(
      "div",
      { class: "hv-net-head" },
      this.words,
      act("−", "make the map smaller (key −)", () => this.zoomTo(this.zoom / 1.25)),
      act("+", "make the map larger (key +)", () => this.zoomTo(this.zoom * 1.25)),
      act("1:1", "the map in its own size (key 0)", () => this.zoomTo(1)),
      act("fit", "the whole map at once (key f)", () => this.fit()),
      act("fold", "close all that was opened", () => this.foldAll()),
    );
    this.root = el("div", { class: "hv-net" }, this.head, this.view);
    this.listen();
  }

  get graph() {
    return sure(this.found);
  }

  get open() {
    return this.app.parts.drawers.open === "map";
  }

  /** The focus goes along. */
  toggleByKey() {
    if (!this.app.source.map) return;
    this.app.parts.drawers.toggle("map");
    if (this.open) this.focusNext = "now";
  }

  toggled(open: boolean) {
    if (open && this.stopped) {
      this.again += 1;
      this.failed = "";
    }
    this.wanted = "";
    this.app.schedule();
  }

  foldAll() {
    this.closed.clear();
    if (this.tree) this.opened = openedAtFirst(this.tree, AT_FIRST);
    for (let each = this.leaf()?.parent; each; each = each.parent) {
      if (!this.opened.has(each.key)) this.closed.add(each.key);
    }
    this.app.schedule();
  }

  /** The map as it is now. */
  show() {
    if (!this.open) return;
    const { app } = this;
    const found = app.source.map?.(app.at, this.again);
    if (found && found !== this.found) this.take(found);
    if (!this.found || !this.dagre) return this.say(this.failed || MAKING);
    const now = `${app.at.layer} ${app.at.call}`;
    const moved = now !== this.wanted;
    if (moved) this.closed.clear();
    this.wanted = now;
    this.lay();
    this.mark();
    this.paintNow();
    if (moved) this.toNow();
    if (!this.focusNext) return;
    const next = this.focusNext === "now"
      ? this.boxOfNow()
      : this.drawn.find(({ unit }) => unit.key === this.focusNext || under(unit, this.focusNext));
    this.focusNext = "";
    next?.root.focus({ preventScroll: true });
    if (next) this.seen(next.root);
  }

  take(found: NetworkGraph | Refused) {
    this.failed = found.none ?? "";
    this.stopped = "stopped" in found && Boolean(found.stopped);
    if (found.none !== undefined) return;
    const same = this.found?.nodes === found.nodes && this.found.sizes === found.sizes;
    this.found = found;
    if (same) return this.repaint(); // another picture: the boxes stay where they are
    const first = !this.tree;
    const shape = JSON.stringify([found.edges, found.nodes.map((each) => each.name)]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.tree = treeOf(found);
      if (first) this.opened = openedAtFirst(this.tree, AT_FIRST);
    }
    this.laid = "";
    if (this.dagre || this.loading) return;
    this.loading = true;
    found.library().then(
      (library) => {
        this.dagre = library;
        this.app.schedule();
      },
      (error: Error) => {
        this.failed = `The map could not be drawn: ${error.message}`;
        this.app.schedule();
      },
    );
  }

  /** Other pictures in the same boxes. */
  repaint() {
    this.painted = undefined;
    for (const { unit, picture } of this.drawn) {
      if (picture) this.paintPicture(picture, this.pictured(unit));
    }
  }

  say(words: string) {
    setText(this.words, words);
  }

  // Which boxes

  /** The index of the node that is shown; −1 if the layer is none of the graph's. */
  index() {
    const { layer, call } = this.app.at;
    const own = this.graph.nodes.flatMap((
      node,
      n,
    ) => (node.layer === layer ? [{ n, call: node.call }] : []));
    return (own.find((each) => each.call === call) ?? own[own.length - 1])?.n ?? -1;
  }

  /** The innermost unit with the shown layer: its own, or the module in which it ran. */
  leaf(): Unit | null {
    if (!this.tree) return null;
    const n = this.index();
    const { layer } = this.app.at;
    const holds = (part: Unit): boolean => {
      if (n >= 0) return part.nodes.includes(n);
      if (part.kind === "group") return part.parts.some(holds);
      return `${layer}.`.startsWith(`${part.name}.`) ||
        (part.kind === "node" && part.name.startsWith(`${layer}.`));
    };
    let unit = this.tree;
    for (;;) {
      const next = unit.parts.find(holds);
      if (!next) return unit === this.tree ? null : unit;
      unit = next;
      if (unit.kind === "node" || (n < 0 && unit.name === layer)) return unit;
    }
  }

  lay() {
    const tree = sure(this.tree);
    this.width ||= this.view.clientWidth;
    const room = Math.max(this.width, 240);
    const around = new Set();
    for (let each = this.leaf()?.parent; each; each = each.parent) around.add(each.key);
    const isOpen = (unit: Unit) =>
      !this.closed.has(unit.key) && (this.opened.has(unit.key) || around.has(unit.key));
    const { boxes } = visibleUnits(tree, isOpen);
    const key = `${room} ${boxes.map((box) => box.key).join()} ${objectId(this.graph.nodes)}`;
    if (key === this.laid) return;
    this.laid = key;
    this.room = room;
    this.marked = "";
    const focused = this.drawn.find(({ root }) => root.matches(":focus"))?.unit.key;
    const edges = reduced(boxes.length, lifted(boxes, this.graph.edges));
    const sizes = boxes.map((box) => this.sizeOf(box));
    this.places = placed(sure(this.dagre), boxes, sizes, edges, room);
    this.drawn = boxes.map((box) => this.boxFor(box));
    this.boxes.replaceChildren(...this.drawn.map(({ root }) => root));
    this.frames.replaceChildren(...this.places.frames.map((frame) => this.frameFor(frame)));
    this.drawn.forEach(({ root }, n) => setBox(root, sure(this.places?.boxes[n])));
    if (focused && !this.focusNext) this.focusNext = focused;
    this.scale();
  }

  /** @param unit The layer whose picture it has: its own, or the last in it; "" without one. */
  pictured(unit: Unit) {
    const { sizes, nodes } = this.graph;
    const own = unit.kind === "module" &&
      [`${unit.name}.heads`, unit.name].find((name) => sizes[name]?.[0]);
    if (own) return own;
    for (const n of [...unit.nodes].reverse()) {
      const { layer, call } = nodes[n];
      if (sizes[layer]?.[0] || (layer === "input" && call === 0 && this.input())) return layer;
    }
    return "";
  }

  /** The input's picture, if it is one. */
  input() {
    return this.app.source.picture(this.app.data?.header.place ?? null);
  }

  /** The captured layers in a unit, in their order. */
  layersIn(unit: Unit): LayerFacts[] {
    if (unit.kind === "group") {
      return [...new Set(unit.parts.flatMap((part) => this.layersIn(part)))];
    }
    const own = new Set(unit.nodes.map((n) => this.graph.nodes[n].layer));
    const { layers } = this.app.facts;
    return layers.filter(({ name }) =>
      own.has(name) || (unit.kind === "module" && `${name}.`.startsWith(`${unit.name}.`))
    );
  }

  /** Its name and what stands below it. */
  wordsOf(unit: Unit) {
    const last = this.graph.nodes[unit.nodes[unit.nodes.length - 1]];
    const join = unit.kind === "node" && !last.layer;
    const sizes = last.shape ?? [];
    const shape = times(sizes.length > 1 && sizes[0] === this.graph.batch ? sizes.slice(1) : sizes);
    const name = (join ? last.operation : innerName(unit)) || unit.name;
    return {
      last,
      join,
      shape,
      own: name,
      lines: [...(join || last.layer === "input" ? [] : [unit.type]), shape].filter(Boolean),
    };
  }

  sizeOf(unit: Unit) {
    const { join, own, lines } = this.wordsOf(unit);
    const { width, height } = join ? JOIN : this.pictured(unit) ? PICTURE : PLAIN;
    const words = Math.max(
      widthOf(own, BOLD, this.root),
      ...lines.map((line) => widthOf(line, SMALL, this.root)),
    );
    return { width: Math.max(width, Math.min(Math.ceil(words) + 12, WIDEST)), height };
  }

  boxFor(unit: Unit): Drawn {
    const { last, join, shape, own, lines } = this.wordsOf(unit);
    const folded = unit.kind !== "node";
    const layers = new Set(unit.nodes.map((n) => this.graph.nodes[n].layer).filter(Boolean)).size;
    const said = [
      unit.name || own,
      folded ? `${unit.type}, ${layers} layers, folded` : unit.type,
      shape,
      last.after.length && !folded ? `then ${last.after.join(" → ")}` : "",
      last.failed ? "the forward failed here" : "",
    ];
    const words = [...new Set(said)].filter(Boolean).join(", ");
    const wide = this.sizeOf(unit).width - (join ? 10 : 8);
    const pictured = join ? "" : this.pictured(unit);
    const picture = pictured ? el("canvas", { class: "hv-net-picture" }) : null;
    if (picture) this.paintPicture(picture, pictured);
    const colours = el("i", { class: "hv-net-colours" });
    const root = el(
      "button",
      {
        class: "hv-net-box",
        type: "button",
        tabindex: -1,
        "data-kind": join ? "join" : unit.kind,
        "data-name": unit.name,
        title: words,
        "aria-label": words,
      },
      colours,
      el("b", {}, fittingWidth(own, BOLD, wide, this.root)),
      ...(picture ? [picture] : []),
      ...lines.map((line) => el("span", {}, fittingWidth(line, SMALL, wide, this.root))),
    );
    if (folded) setAttribute(root, "aria-expanded", "false");
    root.classList.toggle("hv-wrong", Boolean(last.failed));
    root.addEventListener("click", () => this.act(unit));
    for (const event of ["pointerenter", "focus"]) {
      root.addEventListener(event, () => this.point(unit.key));
    }
    for (const event of ["pointerleave", "blur"]) {
      root.addEventListener(event, () => this.point(""));
    }
    return { unit, root, picture, colours };
  }

  frameFor(frame: Frame) {
    const { unit } = frame;
    const words = `close ${unit.name}, ${unit.type}`;
    const close = el("button", {
      class: "hv-net-close",
      type: "button",
      tabindex: -1,
      title: words,
      "aria-label": words,
      "aria-expanded": "true",
    }, `− ${fittingWidth(innerName(unit), BOLD, frame.width - 24, this.root)}`);
    close.addEventListener("click", () => this.fold(unit));
    const made = el("div", { class: "hv-net-frame" }, close);
    setBox(made, frame);
    return made;
  }

  paintPicture(canvas: HTMLCanvasElement, layer: string) {
    const { app } = this;
    if (layer === "input") {
      const picture = this.input();
      if (picture) putPicture(canvas, picture);
      canvas.classList.add("hv-smooth");
      return;
    }
    const { sizes, arrays } = this.graph;
    let start = 0;
    for (const [name, [height, width]] of Object.entries(sizes)) {
      if (name === layer) {
        paint(
          canvas,
          arrays.pictures.values.subarray(start, start + height * width),
          width,
          height,
          app.colours.palette(app.colours.automatic(false)),
        );
      }
      start += height * width;
    }
  }

  // What a hand does

  act(unit: Unit) {
    if (unit.kind !== "node") {
      this.opened.add(unit.key);
      this.closed.delete(unit.key);
      this.focusNext = unit.key;
      return this.app.schedule();
    }
    const node = this.graph.nodes[unit.nodes[0]];
    if (this.app.facts.layers.some((each) => each.name === node.layer)) {
      this.app.set({ layer: node.layer, call: node.call });
    }
    return undefined;
  }

  fold(unit: Unit) {
    this.opened.delete(unit.key);
    this.closed.add(unit.key);
    this.focusNext = unit.key;
    this.app.schedule();
  }

  listen() {
    this.root.addEventListener("keydown", (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const stop = (event.target as Element).closest(".hv-net-box, .hv-net-close");
      const towards =
        ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<
          string,
          [number, number]
        >)[event.key];
      const zooms = {
        "+": this.zoom * 1.25,
        "-": this.zoom / 1.25,
        "−": this.zoom / 1.25,
        0: 1,
      } as Record<string, number>;
      if (towards && stop) this.walk(stop, ...towards);
      else if (zooms[event.key]) this.zoomTo(zooms[event.key]);
      else if (event.key === "f") this.fit();
      else if (event.key === "Escape") this.leave(stop);
      else if (event.key !== "Enter" && event.key !== " ") return;
      event.stopPropagation();
      if (event.key !== "Enter" && event.key !== " ") event.preventDefault();
    });
    this.listenToPointer();
    new ResizeObserver(() => {
      this.width = this.view.clientWidth;
      if (this.open) this.app.schedule();
    }).observe(this.view);
  }

  /**
   * A drag moves the map, Ctrl and the wheel or two fingers zoom it at their place. One finger scrolls, as anywhere.
   */
  listenToPointer() {
    const { view } = this;
    let held: { x: number; y: number; left: number; top: number; moved: boolean } | null = null;
    let dragged = false; // then the click at its end opens no box
    view.addEventListener("pointerdown", (event: PointerEvent) => {
      dragged = false;
      if (event.button || event.pointerType === "touch") return;
      held = {
        x: event.clientX,
        y: event.clientY,
        left: view.scrollLeft,
        top: view.scrollTop,
        moved: false,
      };
    });
    view.addEventListener("pointermove", (event: PointerEvent) => {
      if (!held) return;
      const [across, down] = [held.x - event.clientX, held.y - event.clientY];
      if (!held.moved && Math.hypot(across, down) < DRAG) return;
      if (!held.moved) view.setPointerCapture(event.pointerId);
      held.moved = true;
      view.scrollTo(held.left + across, held.top + down);
    });
    for (const over of ["pointerup", "pointercancel"]) {
      view.addEventListener(over, () => {
        dragged = Boolean(held?.moved);
        held = null;
      });
    }
    view.addEventListener(
      "click",
      (event: MouseEvent) => {
        if (dragged) event.stopPropagation();
        dragged = false;
      },
      { capture: true },
    );
    view.addEventListener(
      "wheel",
      (event: WheelEvent) => {
        if (!event.ctrlKey) return; // else the map, or the page, is scrolled
        event.preventDefault();
        this.zoomTo(this.zoom * Math.exp(-event.deltaY / 300), event);
      },
      { passive: false },
    );
    let pinched: { far: number; zoom: number; x: number; y: number } | null = null;
    const between = (touches: TouchList) => {
      const [one, other] = [sure(touches[0]), sure(touches[1])];
      return {
        far: Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY),
        clientX: (one.clientX + other.clientX) / 2,
        clientY: (one.clientY + other.clientY) / 2,
      };
    };
    view.addEventListener("touchstart", ({ touches }) => {
      if (touches.length !== 2) return;
      const { far, clientX, clientY } = between(touches);
      pinched = { far: Math.max(far, 1), zoom: this.zoom, ...this.placeAt({ clientX, clientY }) };
    });
    view.addEventListener(
      "touchmove",
      (event) => {
        if (!pinched || event.touches.length !== 2) return;
        event.preventDefault();
        const { far, ...centre } = between(event.touches);
        this.zoomTo((pinched.zoom * far) / pinched.far, centre, pinched);
      },
      { passive: false },
    );
    for (const over of ["touchend", "touchcancel"]) {
      view.addEventListener(over, () => (pinched = null));
    }
  }

  /** Close the opened unit around a box; then the map. */
  leave(stop: Element | null) {
    const drawn = this.drawn.find(({ root }) => root === stop);
    const around = drawn?.unit.parent;
    if (around?.parent) this.fold(around);
    else this.app.parts.drawers.go("");
  }

  /** Left and right to the next box of the run, up and down to the nearest. */
  walk(from: Element, right: number, down: number) {
    const boxes: HTMLElement[] = this.drawn.map(({ root }) => root);
    const middleOf = (each: Element) => {
      const { left, top, width, height } = each.getBoundingClientRect();
      return { each: each as HTMLElement, x: left + width / 2, y: top + height / 2 };
    };
    const here = middleOf(from);
    const far = ({ x, y }: typeof here) => Math.abs(y - here.y) + 3 * Math.abs(x - here.x);
    const [nearest] = [...boxes, ...this.frames.querySelectorAll(".hv-net-close")]
      .map(middleOf)
      .filter(({ y }) => (y - here.y) * down > 6)
      .sort((one, other) => far(one) - far(other));
    const place = boxes.indexOf(from as HTMLElement);
    const next = right && place >= 0 ? boxes[place + right] : nearest?.each;
    next?.focus({ preventScroll: true });
    if (next) this.seen(next);
  }

  // What is marked

  /** The box with the shown layer. */
  boxOfNow() {
    const leaf = this.leaf();
    return leaf
      ? this.drawn.find(({ unit }) =>
        unit === leaf || under(leaf, unit.key) || under(unit, leaf.key)
      )
      : undefined;
  }

  /** The shown layer, the layers that feed it and those that it feeds. */
  mark() {
    const { app } = this;
    const n = this.index();
    const measure = measureOf(app.facts.layers, app.at.health);
    const key = `${this.laid} ${n} ${app.at.layer} ${measure} ${objectId(app.facts.layers)}`;
    if (key === this.marked) return;
    this.marked = key;
    const { nodes } = this.graph;
    const sources = new Set(nodes[n]?.sources ?? []);
    const fed = new Set(
      nodes.flatMap(({ sources }, place) => (n >= 0 && sources?.includes(n) ? [place] : [])),
    );
    const scale = scaleOf(app.facts.layers, measure);
    const palette = app.colours.palette("viridis");
    const now = this.boxOfNow();
    for (const each of this.drawn) {
      const { unit, root, colours } = each;
      const holds = (which: Set<number>) => unit.nodes.some((place) => which.has(place));
      root.classList.toggle("hv-on", each === now);
      root.classList.toggle("hv-source", holds(sources));
      root.classList.toggle("hv-fed", holds(fed));
      setAttribute(root, "aria-current", each === now ? "true" : null);
      setAttribute(root, "tabindex", each === (now ?? this.drawn[0]) ? 0 : -1);
      const role = [
        holds(sources) ? "feeds the shown layer" : "",
        holds(fed) ? "fed by the shown layer" : "",
      ].filter(Boolean);
      setAttribute(root, "aria-label", [root.title, ...role].join(", "));
      const own = this.layersIn(unit);
      const stops = own.map((layer, place) =>
        `${colour(palette, scale.share(layer))} ${(100 * place) / own.length}% ${
          (100 * (place + 1)) / own.length
        }%`
      );
      colours.style.background = stops.length
        ? `linear-gradient(90deg, ${stops.join(", ")})`
        : "none";
    }
    const names = (which: Set<number>) => [...which].map((place) => nodes[place].name);
    const told = (
      list: string[],
    ) => (list.length > 6
      ? `${list.slice(0, 5).join(", ")} and ${list.length - 5} more`
      : list.join(", "));
    const from = told(names(sources));
    const to = told(names(fed));
    const leaf = this.leaf();
    const ends = [from && `fed by ${from}`, to && `feeds ${to}`].filter(Boolean).join(" · ");
    this.words.replaceChildren(
      el("b", {}, app.at.layer),
      el(
        "span",
        {},
        n < 0 && leaf
          ? ` is ${leaf.name === app.at.layer ? "a module" : `in ${leaf.name}`}`
          : ` ${ends}`,
      ),
    );
    this.drawEdges();
  }

  /** The chosen channel's map in the shown layer's box; a folded one's mean elsewhere. */
  paintNow() {
    const now = this.boxOfNow();
    if (this.painted && this.painted !== now && this.painted.picture) {
      this.paintPicture(this.painted.picture, this.pictured(this.painted.unit));
    }
    this.painted = now;
    const { canvas } = this.app.parts.map;
    if (!now?.picture || !canvas.width || this.app.data?.header.layer !== this.app.at.layer) return;
    now.picture.width = canvas.width;
    now.picture.height = canvas.height;
    contextOf(now.picture).drawImage(canvas, 0, 0);
  }

  // The sheet

  /** The place of the sheet below a pointer. */
  placeAt({ clientX, clientY }: { clientX: number; clientY: number }) {
    const { view } = this;
    const box = view.getBoundingClientRect();
    return {
      x: (clientX - box.left + view.scrollLeft) / this.zoom,
      y: (clientY - box.top + view.scrollTop) / this.zoom,
    };
  }

  /**
   * @param pointer Stays where it is on the map; the middle of what is seen if none is given.
   * @param place Comes below the pointer; what is there if none is given.
   */
  zoomTo(
    zoom: number,
    pointer?: { clientX: number; clientY: number },
    place?: { x: number; y: number },
  ) {
    const { view } = this;
    const box = view.getBoundingClientRect();
    const { clientX, clientY } = pointer ??
      { clientX: box.left + view.clientWidth / 2, clientY: box.top + view.clientHeight / 2 };
    const { x, y } = place ?? this.placeAt({ clientX, clientY });
    this.zoom = Math.min(Math.max(zoom, LEAST), 4);
    this.scale();
    view.scrollTo(x * this.zoom - (clientX - box.left), y * this.zoom - (clientY - box.top));
  }

  /** So small that all of it is seen, or as large as it is. */
  fit() {
    if (!this.places) return;
    const { view } = this;
    const high = Number.parseFloat(getComputedStyle(view).maxHeight) || view.clientHeight;
    this.zoomTo(Math.min(1, view.clientWidth / this.places.width, high / this.places.height));
    view.scrollTo(0, 0);
  }

  scale() {
    if (!this.places) return;
    const { width, height } = this.places;
    const size = this.sheet.parentElement!;
    size.style.width = `${Math.max(width, this.room) * this.zoom}px`; // else what is at the right could not stay below the pointer
    size.style.height = `${height * this.zoom}px`;
    this.sheet.style.transform = `scale(${this.zoom})`;
    this.drawEdges();
  }

  seen(box: HTMLElement) {
    const { view } = this;
    const [one, all] = [box.getBoundingClientRect(), view.getBoundingClientRect()];
    const over = (low: number, high: number, from: number, to: number) =>
      Math.max(0, high - to + 12) || Math.min(0, low - from - 24);
    view.scrollBy(
      over(one.left, one.right, all.left, all.right),
      over(one.top, one.bottom, all.top, all.bottom),
    );
  }

  toNow() {
    const now = this.boxOfNow();
    if (now) this.seen(now.root);
  }

  /** @param key Of the box whose edges are brought out. */
  point(key: string) {
    if (this.near === key) return;
    this.near = key;
    this.drawEdges();
  }

  drawEdges() {
    if (!this.places) return;
    const { edges, places } = this;
    const sharp = Math.min(
      globalThis.devicePixelRatio * this.zoom,
      Math.sqrt(16e6 / (places.width * places.height)),
    );
    edges.width = Math.round(places.width * sharp);
    edges.height = Math.round(places.height * sharp);
    edges.style.width = `${places.width}px`;
    edges.style.height = `${places.height}px`;
    const context = contextOf(edges);
    context.scale(sharp, sharp);
    const style = getComputedStyle(this.root);
    const [plain, skip, strong] = ["--hv-dim", "--hv-skip", "--hv-accent"].map((name) =>
      style.getPropertyValue(name)
    );
    const lit = this.drawn.findIndex(({ unit }) => unit.key === this.near);
    const now = lit >= 0
      ? lit
      : this.drawn.findIndex(({ root }) => root.classList.contains("hv-on"));
    const skips = places.paths.filter((path) => path.skip).length;
    const order = [...places.paths].sort((a, b) =>
      Number(touches(a, now)) - Number(touches(b, now)) || Number(b.skip) - Number(a.skip)
    );
    for (const path of order) {
      const on = touches(path, now);
      context.strokeStyle = context.fillStyle = sure(on ? strong : path.skip ? skip : plain);
      context.globalAlpha = on ? 1 : path.skip ? Math.max(0.25, Math.min(0.9, 14 / skips)) : 0.85;
      context.lineWidth = on ? 2 : 1.3;
      strokePath(context, path);
    }
  }
}

function touches({ from, to }: Path, box: number) {
  return box >= 0 && (from === box || to === box);
}

/** A line with round corners and a head. */
function strokePath(context: CanvasRenderingContext2D, { points, smooth }: Path) {
  const last = points[points.length - 1];
  context.beginPath();
  context.moveTo(...points[0]);
  for (let n = 1; n < points.length; n++) {
    const [before, here, next] = [points[n - 1], points[n], points[n + 1]];
    const middle = (before[0] + here[0]) / 2;
    if (smooth) context.bezierCurveTo(middle, before[1], middle, here[1], ...here);
    else if (next) context.arcTo(...here, ...next, 5);
  }
  context.lineTo(...last);
  context.stroke();
  const before = points[points.length - 2];
  const angle = smooth ? 0 : Math.atan2(last[1] - before[1], last[0] - before[0]);
  context.beginPath();
  context.moveTo(...last);
  for (const turn of [2.7, -2.7]) {
    context.lineTo(last[0] + 6 * Math.cos(angle + turn), last[1] + 6 * Math.sin(angle + turn));
  }
  context.fill();
}

function under(unit: Unit, key: string) {
  for (let each = unit.parent; each; each = each.parent) if (each.key === key) return true;
  return false;
}

/**
 * A name cut in the middle, as wide as there is room.
 * @param font Weight and size.
 * @param wide Pixels.
 */
function fittingWidth(name: string, font: string, wide: number, root: HTMLElement) {
  let most = name.length;
  while (most > 3 && widthOf(middle(name, most), font, root) > wide) most -= 1;
  return middle(name, most);
}

function widthOf(text: string, font: string, root: HTMLElement) {
  const context = contextOf(sure(root.querySelector("canvas")));
  context.font = `${font} ${getComputedStyle(root).fontFamily}`;
  return context.measureText(text).width;
}

/** Its name within the opened module around it. */
function innerName(unit: Unit) {
  let each = unit.parent;
  while (each?.kind === "group") each = each.parent;
  return each && unit.name.startsWith(`${each.name}.`)
    ? unit.name.slice(each.name.length + 1)
    : unit.name;
}

function setBox({ style }: HTMLElement, { x, y, width, height }: Box) {
  style.left = `${x}px`;
  style.top = `${y}px`;
  style.width = `${width}px`;
  style.height = `${height}px`;
}
