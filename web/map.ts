// The map of the network: which boxes are shown, which are marked, and what a hand does with them.

import { contextOf, paint } from "./levels.ts";
import { around, lifted, openedAtFirst, treeOf, visibleUnits } from "./mapGraph.ts";
import { layOut } from "./mapLayout.ts";
import { putPicture } from "./panel.tsx";
import type { Unit } from "./mapGraph.ts";
import type { Layout } from "./mapLayout.ts";
import type { NetworkGraph, Refused } from "./source.ts";
import type { App } from "./app.ts";
import type { LayerFacts } from "./messages.d.ts";

interface Point {
  x: number;
  y: number;
}

interface Pointer {
  clientX: number;
  clientY: number;
}

const AT_FIRST = 22; // boxes at first
const DRAG = 4; // pixels; below them it is a click
const LEAST = 0.1; // zoom
const ARROWS: Record<string, number> = {
  ArrowLeft: -1,
  ArrowUp: -1,
  ArrowRight: 1,
  ArrowDown: 1,
};

/** A drawer; it follows the shown layer while it is open. */
export class NetworkMap {
  zoom = 1;
  graph!: NetworkGraph; // together with the tree
  tree: Unit | null = null;
  opened: Set<string> = new Set();
  /** Closed by hand around the shown layer. */
  closed: Set<string> = new Set();
  layout: Layout | null = null;
  focusNext = "";
  wanted = "";
  hasMoved = false; // to another layer, which is scrolled into view
  failed = "";
  /** The latest press, and whether a drag followed: then the click at its end opens no box. */
  held: (Point & { left: number; top: number; isMoved: boolean }) | null = null;
  pinched: (Point & { far: number; zoom: number }) | null = null;
  view!: HTMLDivElement; // once the drawer was open

  constructor(public app: App) {}

  /** The focus goes along. */
  toggleByKey() {
    if (!this.app.source.map) return;
    const { drawers } = this.app.parts;
    drawers.toggle("map");
    this.focusNext = drawers.open ? "now" : "";
  }

  toggled(open: boolean) {
    if (open) this.failed = "";
    this.wanted = "";
    this.app.schedule();
  }

  foldAll() {
    this.closed.clear();
    if (this.tree) this.opened = openedAtFirst(this.tree, AT_FIRST);
    for (const unit of this.around()) if (!this.opened.has(unit.key)) this.closed.add(unit.key);
    this.app.schedule();
  }

  /** Bring tree and boxes to what is shown. */
  update() {
    const { app } = this;
    const found = app.source.map?.(app.at);
    if (found && found !== this.graph) this.take(found);
    if (!this.tree) return;
    const now = `${app.at.layer} ${app.at.call}`;
    if (now !== this.wanted) {
      this.closed.clear();
      this.hasMoved = true;
    }
    this.wanted = now;
    this.lay(this.tree);
  }

  /** Scroll and focus, once the boxes are there. */
  follow() {
    if (this.hasMoved) this.seen(this.elements[this.now]);
    this.hasMoved = false;
    const key = this.focusNext;
    this.focusNext = "";
    if (key === "now") {
      // Unless another click or key came before the map.
      if (this.app.parts.drawers.fresh) this.focus(this.elements[this.now]);
    } else if (key) {
      const isIn = (unit: Unit) => unit.key === key || under(unit, key);
      this.focus(this.elements[this.boxes.findIndex(isIn)]);
    }
  }

  take(found: NetworkGraph | Refused) {
    this.failed = found.none ?? "";
    if (found.none !== undefined) return;
    const isSame = this.graph?.nodes === found.nodes && this.graph.sizes === found.sizes;
    this.graph = found;
    if (isSame) return; // another picture: the boxes stay where they are
    const isFirst = !this.tree;
    this.tree = treeOf(found);
    if (isFirst) this.opened = openedAtFirst(this.tree, AT_FIRST);
    this.layout = null;
  }

  // Which boxes

  /** The index of the node that is shown; −1 if the layer is none of the graph's. */
  index() {
    const { layer, call } = this.app.at;
    const { nodes } = this.graph;
    const own = [...nodes.keys()].filter((n) => nodes[n].layer === layer);
    return own.find((n) => nodes[n].call === call) ?? own[own.length - 1] ?? -1;
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

  /** The units around the shown layer. */
  around() {
    const leaf = this.leaf();
    return leaf ? around(leaf) : [];
  }

  /** The index of the box with the shown layer, or −1. */
  get now() {
    const leaf = this.leaf();
    return this.boxes.findIndex((unit) =>
      leaf && (unit === leaf || under(leaf, unit.key) || under(unit, leaf.key))
    );
  }

  get boxes() {
    return this.layout?.boxes ?? [];
  }

  lay(tree: Unit) {
    const around = new Set(this.around());
    const isOpen = (unit: Unit) =>
      !this.closed.has(unit.key) && (this.opened.has(unit.key) || around.has(unit));
    const units = visibleUnits(tree, isOpen);
    const { boxes } = this;
    if (boxes.length === units.length && units.every((unit) => boxes.includes(unit))) return;
    // A box that is moved loses the focus.
    const focused = this.elements.findIndex((box) => box.matches(":focus"));
    this.focusNext ||= boxes[focused]?.key ?? "";
    this.layout = layOut(tree, units, lifted(units, this.graph.edges));
  }

  /** @param unit The layer whose picture it has: its own, or the last in it; "" without one. */
  pictured(unit: Unit) {
    const { sizes, nodes } = this.graph;
    const own = unit.kind === "module" &&
      [`${unit.name}.heads`, unit.name].find((name) => sizes[name]?.[0]);
    if (own) return own;
    const last = unit.nodes.findLast((n) => {
      const { layer, call } = nodes[n];
      const isShown = layer === "input" && call === this.app.data?.header.place?.[2];
      return sizes[layer]?.[0] || (isShown && this.input());
    });
    return last === undefined ? "" : nodes[last].layer;
  }

  /** The picture of the input from which the shown layer's map comes, if it is one. */
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

  /**
   * The map of a layer's picture.
   * @param isNow Whether its box has the shown layer: then it is the chosen channel's.
   */
  paintPicture(canvas: HTMLCanvasElement, layer: string, isNow: boolean) {
    const { app, graph: { sizes, arrays } } = this;
    const chosen = app.parts.map.canvas;
    if (isNow && chosen?.width && app.data?.header.layer === app.at.layer) {
      canvas.width = chosen.width;
      canvas.height = chosen.height;
      return contextOf(canvas).drawImage(chosen, 0, 0);
    }
    const picture = layer === "input" && this.input();
    if (picture) return putPicture(canvas, picture);
    let start = 0;
    for (const [name, [height, width]] of Object.entries(sizes)) {
      const end = start + height * width;
      if (name === layer) {
        const palette = app.colours.palette(app.colours.automatic(false));
        paint(canvas, arrays.pictures.values.subarray(start, end), width, height, palette);
      }
      start = end;
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
    const { layer, call } = this.graph.nodes[unit.nodes[0]];
    if (this.app.facts.layers.some(({ name }) => name === layer)) this.app.set({ layer, call });
  }

  fold(unit: Unit) {
    this.opened.delete(unit.key);
    this.closed.add(unit.key);
    this.focusNext = unit.key;
    this.app.schedule();
  }

  key(event: KeyboardEvent) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { key, target } = event;
    const box = this.boxes[this.elements.indexOf(target as HTMLElement)];
    const zoom =
      ({ "+": this.zoom * 1.25, "-": this.zoom / 1.25, "−": this.zoom / 1.25, 0: 1 } as Record<
        string,
        number
      >)[key];
    const isPress = key === "Enter" || key === " ";
    if (ARROWS[key] && box) this.walk(box, ARROWS[key]);
    else if (zoom) this.zoomTo(zoom);
    else if (key === "f") this.fit();
    else if (key === "Escape") this.leave(box);
    else if (!isPress) return;
    event.stopPropagation();
    if (!isPress) event.preventDefault();
  }

  /** Close the opened unit around a box; then the map. */
  leave(box: Unit | undefined) {
    if (box?.parent?.parent) this.fold(box.parent);
    else this.app.parts.drawers.go("");
  }

  /** To the next box of the run, or to the one before. */
  walk(from: Unit, by: number) {
    const run = this.boxes.toSorted((one, other) => one.nodes[0] - other.nodes[0]);
    const next = run[run.indexOf(from) + by];
    this.focus(this.elements[this.boxes.indexOf(next)]);
  }

  press({ clientX: x, clientY: y, pointerType }: PointerEvent) {
    const { scrollLeft: left, scrollTop: top } = this.view;
    // One finger scrolls, as anywhere.
    this.held = pointerType === "touch" ? null : { x, y, left, top, isMoved: false };
  }

  /** A drag moves the map. */
  move(event: PointerEvent) {
    const { held, view } = this;
    if (!held || event.buttons !== 1) return;
    const [across, down] = [held.x - event.clientX, held.y - event.clientY];
    if (!held.isMoved && Math.hypot(across, down) < DRAG) return;
    if (!held.isMoved) view.setPointerCapture(event.pointerId);
    held.isMoved = true;
    view.scrollTo(held.left + across, held.top + down);
  }

  click(event: Event) {
    if (this.held?.isMoved) event.stopPropagation();
    this.held = null; // a click by key follows no press
  }

  /** Ctrl and the wheel, or two fingers, zoom the map at their place. */
  wheel(event: WheelEvent) {
    if (!event.ctrlKey) return; // else the map, or the page, is scrolled
    event.preventDefault();
    this.zoomTo(this.zoom * Math.exp(-event.deltaY / 300), event);
  }

  touch(event: TouchEvent) {
    if (event.touches.length !== 2) return;
    const { far, ...centre } = between(event.touches);
    if (event.type === "touchstart") {
      this.pinched = { far: Math.max(far, 1), zoom: this.zoom, ...this.placeAt(centre) };
    } else if (this.pinched) {
      event.preventDefault();
      this.zoomTo((this.pinched.zoom * far) / this.pinched.far, centre, this.pinched);
    }
  }

  // The sheet

  get elements() {
    return [...this.view?.querySelectorAll<HTMLElement>(".hv-net-box") ?? []];
  }

  focus(element: HTMLElement | undefined) {
    element?.focus({ preventScroll: true });
    this.seen(element);
  }

  /** The place of the sheet below a pointer. */
  placeAt({ clientX, clientY }: Pointer): Point {
    const { left, top } = this.view.getBoundingClientRect();
    return {
      x: (clientX - left + this.view.scrollLeft) / this.zoom,
      y: (clientY - top + this.view.scrollTop) / this.zoom,
    };
  }

  /**
   * @param pointer Stays where it is on the map; the middle of what is seen if none is given.
   * @param place Comes below the pointer; what is there if none is given.
   */
  zoomTo(zoom: number, pointer?: Pointer, place?: Point) {
    const { view } = this;
    const { left, top } = view.getBoundingClientRect();
    const { clientX, clientY } = pointer ??
      { clientX: left + view.clientWidth / 2, clientY: top + view.clientHeight / 2 };
    const { x, y } = place ?? this.placeAt({ clientX, clientY });
    this.zoom = Math.min(Math.max(zoom, LEAST), 4);
    this.app.drawNow();
    view.scrollTo(x * this.zoom - (clientX - left), y * this.zoom - (clientY - top));
  }

  /** So small that all of it is seen, or as large as it is. */
  fit() {
    const { view } = this;
    const sheet = view.querySelector<HTMLElement>(".hv-net-sheet");
    const high = Number.parseFloat(getComputedStyle(view).maxHeight) || view.clientHeight;
    if (sheet) this.zoomTo(Math.min(1, high / sheet.offsetHeight));
    view.scrollTo(0, 0);
  }

  /** Scroll the map so that an element is seen. */
  seen(element: HTMLElement | undefined) {
    if (!element) return;
    const [one, all] = [element.getBoundingClientRect(), this.view.getBoundingClientRect()];
    const over = (low: number, high: number, from: number, to: number) =>
      Math.max(0, high - to + 12) || Math.min(0, low - from - 24);
    this.view.scrollBy(
      over(one.left, one.right, all.left, all.right),
      over(one.top, one.bottom, all.top, all.bottom),
    );
  }
}

/** The middle of two fingers, and how far they are apart. */
function between([one, other]: TouchList) {
  return {
    far: Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY),
    clientX: (one.clientX + other.clientX) / 2,
    clientY: (one.clientY + other.clientY) / 2,
  };
}

function under(unit: Unit, key: string) {
  return around(unit).some((outer) => outer.key === key);
}

/** Its name within the opened module around it. */
export function innerName(unit: Unit) {
  let each = unit.parent;
  while (each?.kind === "group") each = each.parent;
  return each && unit.name.startsWith(`${each.name}.`)
    ? unit.name.slice(each.name.length + 1)
    : unit.name;
}
