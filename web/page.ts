// The entry of a page: all numbers are in it, packed; no kernel, no network.

import { block, tellSize } from "./blocks.ts";
import { readJson } from "./dom.ts";
import { onlyFor } from "./heatmaps.ts";
import { Layer } from "./layer.ts";
import { openView } from "./opening.ts";
import { pictureOf } from "./pictures.ts";
import { answered } from "./walk.ts";
import type { Block } from "./blocks.ts";
import type { Arrays, Header } from "./layer.ts";
import type { PictureHeader, TargetFacts } from "./messages.d.ts";
import type { Found } from "./output.tsx";
import type {
  At,
  Facts,
  HeatAt,
  NetworkGraph,
  Picture,
  ReasonQuestion,
  Refused,
} from "./source.ts";
import type { HeldAnswers } from "./walk.ts";

interface HeatsHeader {
  /** The heatmaps that do not depend on the target. */
  any_target: string[];
}

/** What is in the page. */
class PageSource {
  live = false;
  listeners: Set<() => void> = new Set();
  known: Map<string, unknown> = new Map();
  pending: Set<string> = new Set();
  link = false;

  first: Facts;

  constructor(public facts: Facts) {
    this.first = facts;
  }

  tell() {
    for (const listener of this.listeners) listener();
  }

  /** A block that is unpacked, or null: then it will be. */
  get<Header, Made>(id: string, make: (found: Block<Header>) => Made): Made | null {
    if (!this.pending.has(id)) {
      this.pending.add(id);
      block<Header>(id).then((found) => {
        this.known.set(id, found && make(found));
        this.tell();
      });
    }
    return (this.known.get(id) ?? null) as Made | null;
  }

  layer(at: At) {
    const place = this.place(at.layer);
    const { order } = this.facts.choices;
    const made = ({ header, arrays }: Block<Header>) =>
      new Layer(header, arrays as unknown as Arrays, order);
    return this.get(`layer-${place}`, made);
  }

  place(name: string) {
    return this.facts.layers.findIndex((each) => each.name === name);
  }

  heat({ layer, heatmap }: HeatAt) {
    const heats = this.get("heatmaps", (found: Block<HeatsHeader>) => found);
    if (!heats) return null;
    const { facts: { target }, first } = this;
    const isStored = target === first.target || heats.header.any_target.includes(heatmap);
    if (!isStored && heatmap !== "gradcam") {
      return { values: null, shape: [], none: onlyFor(first, heatmap, first.target.name) };
    }
    const method = isStored ? heatmap : `gradcam ${target.number}`;
    const found = heats.arrays[`${method} ${this.place(layer)}`];
    const none = this.facts.layers[this.place(layer)]?.gradient === null; // then it is said why
    return found ?? (none ? { values: null, shape: [] } : NO_HEAT);
  }

  field(at: At) {
    return this.layer(at)?.header.field ?? null;
  }

  map() {
    const made = ({ header, arrays }: Block<NetworkGraph | Refused>) => ({ ...header, arrays });
    return this.get("map", made) as NetworkGraph | Refused | null;
  }

  /** The picture that a layer's maps were computed from. */
  picture(place: [number, number, number] | null) {
    if (!place) return null;
    const made = ({ header, arrays }: Block<PictureHeader>) =>
      pictureOf(arrays.pixels.values, header);
    return this.get(`picture-${place[0]}-${place[2]}`, made) as Picture | null;
  }

  /** A map of the output. */
  answer(which: number, channel: number | null) {
    const found = this.get("answer", ({ arrays }) => {
      const made: Record<string, Found> = {};
      for (const [name, array] of Object.entries(arrays)) {
        const [output, map, kind] = name.split(" ");
        const key = `${output} ${map}`;
        made[key] = { ...made[key], [kind]: array };
      }
      return made;
    });
    return found && (found[`${which} ${channel ?? "all"}`] ?? LEFT_OUT);
  }

  /** The page has the heatmaps of this class already, and the gradients of its own target. */
  target(number: number) {
    const { target, predictions } = this.first;
    const found = predictions.find((each) => each.number === number);
    if (!found || number === target.number) return this.retarget(target);
    const { name } = found;
    this.retarget({ name, number, written: String(number), chosen: true });
  }

  retarget(target: TargetFacts) {
    const { notes = [], target: { name }, opened } = this.first;
    const isFirst = target === this.first.target;
    const note = isFirst ? [] : [`Gradients in this page are of ${name}.`];
    this.facts = {
      ...this.facts,
      target,
      opened: isFirst ? opened : null, // why the page opened there is about its own target
      notes: [...note, ...notes],
    };
    this.tell();
  }

  restart() {
    this.retarget(this.first.target);
  }

  get gradientsOf() {
    return this.first.target.name;
  }

  edit() {} // there is no network here to change
  ablate() {}

  value() {
    return null;
  }

  get reasonsHeld() {
    return this.get("why", (found: HeldAnswers) => found);
  }

  why<Asked extends ReasonQuestion>(question: Asked) {
    const held = this.reasonsHeld;
    if (!held) return null;
    const layer = this.facts.layers[this.place("layer" in question ? (question.layer ?? "") : "")];
    return answered(question, held, layer?.map ?? []);
  }

  /** Whether answers about values, or kernels, are in the page. */
  holds(what: "answers" | "weights") {
    return Boolean(this.reasonsHeld?.header[what].length);
  }

  prefetch(_: At, layers: string[]) {
    for (const layer of layers) this.layer({ layer });
  }
}

const LEFT_OUT: Found = { none: "left out of this page to save space" };
const NO_HEAT = { values: null, shape: [], none: "no heatmap of this layer is in the page" };

/** Put the app into the still picture's place. */
function start() {
  const { facts, settings } = readJson("facts");
  const root = document.getElementById("hookviz");
  if (!root) return;
  const source = new PageSource(facts);
  openView(
    root,
    source,
    settings,
    (settings) => {
      const place = source.layer(settings)?.header.place;
      return place === null || Boolean(place && source.picture(place)); // undefined: no layer yet
    },
  );
  tellSize();
}

start();
