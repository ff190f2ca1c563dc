// How the map of the network is drawn: boxes for layers and modules, frames around opened ones, edges.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Canvas, Toggle } from "./controls.tsx";
import { contextOf } from "./levels.ts";
import { innerName } from "./map.ts";
import { pathsOf } from "./mapLayout.ts";
import { middle, times } from "./numbers.ts";
import { colour, measureOf, scaleOf } from "./ribbon.tsx";
import type { NetworkMap } from "./map.ts";
import type { Unit } from "./mapGraph.ts";
import type { Layout, Path } from "./mapLayout.ts";

const MAKING = "the map is being made: the network runs once more; interrupt the kernel to stop";
const LONGEST = 26; // characters of a name

export function MapView({ map }: { map: NetworkMap }) {
  const acts: Array<[text: string, title: string, act: () => void]> = [
    ["−", "make the map smaller (key −)", () => map.zoomTo(map.zoom / 1.25)],
    ["+", "make the map larger (key +)", () => map.zoomTo(map.zoom * 1.25)],
    ["1:1", "the map in its own size (key 0)", () => map.zoomTo(1)],
    ["fit", "the whole map at once (key f)", () => map.fit()],
    ["fold", "close all that was opened", () => map.foldAll()],
  ];
  const [room, setRoom] = useState(0); // pixels across
  useLayoutEffect(() => {
    const { view } = map;
    const measure = () => setRoom(view.clientWidth);
    measure();
    const size = new ResizeObserver(measure);
    size.observe(view);
    return () => size.disconnect();
  }, []);
  map.update();
  return (
    <div class="hv-net" onKeyDown={(event) => map.key(event)}>
      <div class="hv-net-head">
        <div class="hv-net-words" role="status">
          {map.layout ? <Words map={map} /> : map.failed || MAKING}
        </div>
        {acts.map(([text, title, act]) => (
          <Toggle key={text} title={title} aria-label={title} onClick={act}>{text}</Toggle>
        ))}
      </div>
      <div
        ref={(view) => {
          if (view) map.view = view;
        }}
        class="hv-net-view"
        onPointerDown={(event) => map.press(event)}
        onPointerMove={(event) => map.move(event)}
        onClickCapture={(event) => map.click(event)}
        onWheel={(event) => map.wheel(event)}
        onTouchStart={(event) => map.touch(event)}
        onTouchMove={(event) => map.touch(event)}
      >
        {map.layout && room > 0 && <Sheet map={map} layout={map.layout} room={room} />}
      </div>
    </div>
  );
}

/** The layers that feed the shown one, and those that it feeds, as indices of nodes. */
function neighboursOf({ graph: { nodes } }: NetworkMap, index: number) {
  const fed = index < 0 ? [] : [...nodes.keys()].filter((n) => nodes[n].sources?.includes(index));
  return { sources: nodes[index]?.sources ?? [], fed };
}

/** The shown layer, the layers that feed it and those that it feeds. */
function Words({ map }: { map: NetworkMap }) {
  const { graph: { nodes }, app: { at: { layer } } } = map;
  const index = map.index();
  const leaf = index < 0 && map.leaf();
  const named = (verb: string, list: number[]) => {
    const names = list.map((n) => nodes[n].name);
    const first = names.length > 6
      ? `${names.slice(0, 5).join(", ")} and ${names.length - 5} more`
      : names.join(", ");
    return first && `${verb} ${first}`;
  };
  const { sources, fed } = neighboursOf(map, index);
  const where = leaf
    ? `is ${leaf.name === layer ? "a module" : `in ${leaf.name}`}`
    : [named("fed by", sources), named("feeds", fed)].filter(Boolean).join(" · ");
  return (
    <>
      <b>{layer}</b>
      <span>{` ${where}`}</span>
    </>
  );
}

/** @param room Pixels across. */
function Sheet({ map, layout, room }: { map: NetworkMap; layout: Layout; room: number }) {
  const { app: { at, facts: { layers }, parts, colours }, zoom, graph } = map;
  useLayoutEffect(() => map.follow());
  const [near, setNear] = useState(""); // the box under the pointer, or with the focus
  const size = useRef<HTMLDivElement>(null);
  const sheet = useRef<HTMLDivElement>(null);
  // The same elements while nothing of them changes: a view is drawn at every move of the pointer.
  const boxes = useMemo(
    () => boxesOf(map, layout, setNear),
    [layout, graph, at.layer, at.call, at.health, layers, ...parts.map.deps, map.input()],
  );
  const shown = layout.boxes.find(({ key }) => key === near) ?? layout.boxes[map.now];
  const measured = useMemo(() => ({ paths: null as Path[] | null }), [layout, graph, room]);
  const paint = (canvas: HTMLCanvasElement) => {
    measured.paths ??= pathsOf(layout, placesIn(sheet.current!, layout));
    size.current!.style.height = `${sheet.current!.offsetHeight * zoom}px`;
    drawEdges(canvas, measured.paths, shown, zoom);
  };
  return (
    // As wide as the view: else what is at the right could not stay below the pointer.
    <div ref={size} class="hv-net-size" style={{ width: `${room * zoom}px` }}>
      <div
        ref={sheet}
        class="hv-net-sheet"
        style={{
          width: `${room}px`,
          transform: `scale(${zoom})`,
          "--lanes": layout.lanes.get(map.tree!),
        }}
      >
        <Canvas
          class="hv-net-edges"
          aria-hidden="true"
          paint={paint}
          deps={[measured, shown, zoom, colours.dark]}
        />
        {boxes}
      </div>
    </div>
  );
}

/** Where the browser has placed boxes and opened units. */
function placesIn(sheet: HTMLElement, { boxes, columns }: Layout) {
  const units = new Map([...boxes, ...columns.keys()].map((unit) => [unit.key, unit]));
  return new Map(
    [...sheet.querySelectorAll<HTMLElement>("[data-key]")].map((element) => {
      const { offsetLeft: x, offsetTop: y, offsetWidth: width, offsetHeight: height } = element;
      return [units.get(element.dataset.key!)!, { x, y, width, height }];
    }),
  );
}

/**
 * The parts of opened units in their columns.
 * @param point Brings out the edges of a box.
 */
function boxesOf(map: NetworkMap, layout: Layout, point: (key: string) => void) {
  const { app, graph: { nodes, batch } } = map;
  const { columns, lanes, boxes } = layout;
  const { sources, fed } = neighboursOf(map, map.index());
  const measure = measureOf(app.facts.layers, app.at.health);
  const scale = scaleOf(app.facts.layers, measure);
  const palette = app.colours.palette("viridis");
  const now = boxes[map.now];
  const inside = (unit: Unit) => (
    <div class="hv-net-parts">
      {columns.get(unit)!.map((column) => (
        <div key={column[0].key} class="hv-net-column">
          {column.map((part) => (columns.has(part) ? frame(part) : box(part)))}
        </div>
      ))}
    </div>
  );
  const frame = (unit: Unit) => {
    const words = `close ${unit.name}, ${unit.type}`;
    return (
      <div
        key={unit.key}
        class="hv-net-frame"
        style={{ "--lanes": lanes.get(unit) }}
        data-key={unit.key}
      >
        <button
          type="button"
          class="hv-net-close"
          tabIndex={-1}
          title={`${words}; on the keyboard, Escape in one of its boxes`}
          aria-label={words}
          aria-expanded="true"
          onClick={() => map.fold(unit)}
        >
          {`− ${innerName(unit)}`}
        </button>
        {inside(unit)}
      </div>
    );
  };
  const box = (unit: Unit) => {
    const last = nodes[unit.nodes[unit.nodes.length - 1]];
    const isFolded = unit.kind !== "node";
    const isJoin = !isFolded && !last.layer;
    const sizes = last.shape ?? [];
    const shape = times(sizes.length > 1 && sizes[0] === batch ? sizes.slice(1) : sizes);
    const name = (isJoin ? last.operation : innerName(unit)) || unit.name;
    const type = isJoin || last.layer === "input" ? "" : unit.type;
    const picture = isJoin ? "" : map.pictured(unit);
    const isNow = unit === now;
    const [isSource, isFed] = [sources, fed].map((list) =>
      list.some((n) => unit.nodes.includes(n))
    );
    const own = map.layersIn(unit);
    const stops = own.map((layer, n) =>
      `${colour(palette, scale.share(layer))} ${(100 * n) / own.length}% ${
        (100 * (n + 1)) / own.length
      }%`
    );
    const layers = new Set(unit.nodes.map((n) => nodes[n].layer).filter(Boolean)).size;
    const facts = [
      unit.name || name,
      isFolded ? `${unit.type}, ${layers} layers, folded` : unit.type,
      shape,
      last.after.length && !isFolded ? `then ${last.after.join(" → ")}` : "",
      last.failed ? "the forward failed here" : "",
    ];
    const title = [...new Set(facts)].filter(Boolean).join(", ");
    return (
      <button
        key={unit.key}
        type="button"
        class={`hv-net-box${last.failed ? " hv-wrong" : ""}${isNow ? " hv-on" : ""}${
          isSource ? " hv-source" : ""
        }${isFed ? " hv-fed" : ""}`}
        tabIndex={unit === (now ?? boxes[0]) ? 0 : -1}
        title={title}
        data-key={unit.key}
        data-kind={isJoin ? "join" : unit.kind}
        data-name={unit.name}
        aria-label={`${title}${isSource ? ", feeds the shown layer" : ""}${
          isFed ? ", fed by the shown layer" : ""
        }`}
        aria-current={isNow ? "true" : undefined}
        aria-expanded={isFolded ? "false" : undefined}
        onClick={() => map.act(unit)}
        onPointerEnter={() => point(unit.key)}
        onFocus={() => point(unit.key)}
        onPointerLeave={() => point("")}
        onBlur={() => point("")}
      >
        <i
          class="hv-net-colours"
          style={{
            background: own.length ? `linear-gradient(90deg, ${stops.join(", ")})` : "none",
          }}
        />
        <b>{middle(name, LONGEST)}</b>
        {picture && (
          <Canvas
            class={`hv-net-picture${picture === "input" ? " hv-smooth" : ""}`}
            paint={(canvas) => map.paintPicture(canvas, picture, isNow)}
            deps={[map.graph, ...isNow ? app.parts.map.deps : []]}
          />
        )}
        {[type, shape].filter(Boolean).map((line, n) => <span key={n}>{line}</span>)}
      </button>
    );
  };
  return inside(map.tree!);
}

/** @param shown The box whose edges are brought out. */
function drawEdges(canvas: HTMLCanvasElement, paths: Path[], shown: Unit, zoom: number) {
  const { offsetWidth: width, offsetHeight: height } = canvas;
  const sharp = Math.min(devicePixelRatio * zoom, Math.sqrt(16e6 / (width * height)));
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  const context = contextOf(canvas);
  context.scale(sharp, sharp);
  const style = getComputedStyle(canvas);
  const [plain, skipped, strong] = ["--hv-dim", "--hv-skip", "--hv-accent"].map((name) =>
    style.getPropertyValue(name)
  );
  const isSkip = ({ direct, onward }: Path) => !direct && !onward;
  const skips = paths.filter(isSkip).length;
  const touches = ({ from, to }: Path) => from === shown || to === shown;
  const order = [...paths].sort((a, b) =>
    Number(touches(a)) - Number(touches(b)) || Number(isSkip(b)) - Number(isSkip(a))
  );
  for (const path of order) {
    const [isOn, skip] = [touches(path), isSkip(path)];
    context.strokeStyle = context.fillStyle = isOn ? strong : skip ? skipped : plain;
    context.globalAlpha = isOn ? 1 : skip ? Math.max(0.25, Math.min(0.9, 14 / skips)) : 0.85;
    context.lineWidth = isOn ? 2 : 1.3;
    strokePath(context, path);
  }
}

/** A line with round corners and a head. */
function strokePath(context: CanvasRenderingContext2D, { points, direct }: Path) {
  const last = points[points.length - 1];
  context.beginPath();
  context.moveTo(...points[0]);
  for (let n = 1; n < points.length; n++) {
    const [before, here, next] = [points[n - 1], points[n], points[n + 1]];
    const middle = (before[0] + here[0]) / 2;
    if (direct) context.bezierCurveTo(middle, before[1], middle, here[1], ...here);
    else if (next) context.arcTo(...here, ...next, 5);
  }
  context.lineTo(...last);
  context.stroke();
  context.beginPath();
  context.moveTo(...last);
  for (const turn of [2.7, -2.7]) {
    context.lineTo(last[0] + 6 * Math.cos(turn), last[1] + 6 * Math.sin(turn));
  }
  context.fill();
}
