// How the map of the network is drawn: boxes for layers and modules, frames around opened ones, edges.

import { useMemo, useState } from "preact/hooks";
import { Canvas, Toggle } from "./controls.tsx";
import { contextOf } from "./levels.ts";
import { colour, measureOf, scaleOf } from "./ribbon.tsx";
import type { NetworkMap } from "./map.ts";
import type { Box, Path, Placed } from "./mapLayout.ts";

const MAKING = "the map is being made: the network runs once more; interrupt the kernel to stop";

export function MapView({ map }: { map: NetworkMap }) {
  return (
    <div class="hv-net" onKeyDown={(event) => map.key(event)}>
      <div class="hv-net-head">
        <div class="hv-net-words" role="status">
          {map.places ? <Words map={map} /> : map.failed || (map.open ? MAKING : "")}
        </div>
        <Act
          text="−"
          title="make the map smaller (key −)"
          onClick={() => map.zoomTo(map.zoom / 1.25)}
        />
        <Act
          text="+"
          title="make the map larger (key +)"
          onClick={() => map.zoomTo(map.zoom * 1.25)}
        />
        <Act text="1:1" title="the map in its own size (key 0)" onClick={() => map.zoomTo(1)} />
        <Act text="fit" title="the whole map at once (key f)" onClick={() => map.fit()} />
        <Act text="fold" title="close all that was opened" onClick={() => map.foldAll()} />
      </div>
      <div
        ref={(view) => {
          if (view) map.view = view;
        }}
        class="hv-net-view"
        onPointerDown={(event) => map.press(event)}
        onPointerMove={(event) => map.move(event)}
        onPointerUp={() => map.release()}
        onPointerCancel={() => map.release()}
        onClickCapture={(event) => map.click(event)}
        onWheel={(event) => map.wheel(event)}
        onTouchStart={(event) => map.touch(event)}
        onTouchMove={(event) => map.touch(event)}
        onTouchEnd={() => (map.pinched = null)}
        onTouchCancel={() => (map.pinched = null)}
      >
        {map.places && <Sheet map={map} places={map.places} />}
      </div>
    </div>
  );
}

function Act({ text, title, onClick }: { text: string; title: string; onClick: () => void }) {
  return <Toggle title={title} aria-label={title} onClick={onClick}>{text}</Toggle>;
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

function Sheet({ map, places }: { map: NetworkMap; places: Placed }) {
  const { app: { at, facts: { layers }, parts, colours }, zoom, boxes, graph, room } = map;
  const [near, setNear] = useState(""); // the box under the pointer, or with the focus
  const { width, height } = places;
  const frames = useMemo(() =>
    places.frames.map((frame, n) => {
      const { unit } = frame;
      const words = `close ${unit.name}, ${unit.type}`;
      return (
        <div key={`${unit.key} ${n}`} class="hv-net-frame" style={styleOf(frame)}>
          <button
            type="button"
            class="hv-net-close"
            tabIndex={-1}
            title={words}
            aria-label={words}
            aria-expanded="true"
            onClick={() => map.fold(unit)}
          >
            {`− ${map.nameOf(frame)}`}
          </button>
        </div>
      );
    }), [places]);
  const now = useMemo(() => map.now, [places, at.layer, at.call]);
  // The same elements while nothing of them changes: a view is drawn at every move of the pointer.
  const buttons = useMemo(
    () => boxesOf(map, now, setNear),
    [boxes, graph, at.layer, at.call, at.health, layers, parts.map.key],
  );
  const lit = boxes.findIndex(({ unit }) => unit.key === near);
  const shown = lit >= 0 ? lit : now;
  return (
    // At least as wide as the view: else what is at the right could not stay below the pointer.
    <div
      class="hv-net-size"
      style={{ width: `${Math.max(width, room) * zoom}px`, height: `${height * zoom}px` }}
    >
      <div class="hv-net-sheet" style={{ transform: `scale(${zoom})` }}>
        <div>{frames}</div>
        <Canvas
          class="hv-net-edges"
          style={{ width: `${width}px`, height: `${height}px` }}
          aria-hidden="true"
          paint={(canvas) => drawEdges(canvas, places, shown, zoom)}
          deps={[places, shown, zoom, colours.dark]}
        />
        <div>{buttons}</div>
      </div>
    </div>
  );
}

/**
 * @param now The index of the box with the shown layer.
 * @param point Brings out the edges of a box.
 */
function boxesOf(map: NetworkMap, now: number, point: (key: string) => void) {
  const { app, boxes, graph } = map;
  const { sources, fed } = neighboursOf(map, map.index());
  const measure = measureOf(app.facts.layers, app.at.health);
  const scale = scaleOf(app.facts.layers, measure);
  const palette = app.colours.palette("viridis");
  return boxes.map((box, place) => {
    const { unit, kind, title, picture } = box;
    const isNow = place === now;
    const [isSource, isFed] = [sources, fed].map((list) =>
      list.some((n) => unit.nodes.includes(n))
    );
    const own = map.layersIn(unit);
    const stops = own.map((layer, n) =>
      `${colour(palette, scale.share(layer))} ${(100 * n) / own.length}% ${
        (100 * (n + 1)) / own.length
      }%`
    );
    return (
      <button
        key={unit.key}
        type="button"
        class={`hv-net-box${box.isWrong ? " hv-wrong" : ""}${isNow ? " hv-on" : ""}${
          isSource ? " hv-source" : ""
        }${isFed ? " hv-fed" : ""}`}
        style={styleOf(box)}
        tabIndex={place === Math.max(now, 0) ? 0 : -1}
        title={title}
        data-kind={kind}
        data-name={unit.name}
        aria-label={`${title}${isSource ? ", feeds the shown layer" : ""}${
          isFed ? ", fed by the shown layer" : ""
        }`}
        aria-current={isNow ? "true" : undefined}
        aria-expanded={unit.kind === "node" ? undefined : "false"}
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
        <b>{box.name}</b>
        {picture && (
          <Canvas
            class={`hv-net-picture${picture === "input" ? " hv-smooth" : ""}`}
            paint={(canvas) => map.paintPicture(canvas, picture, isNow)}
            deps={[graph, isNow && app.parts.map.key]}
          />
        )}
        {box.lines.map((line, n) => <span key={n}>{line}</span>)}
      </button>
    );
  });
}

const styleOf = ({ x, y, width, height }: Box) => ({
  left: `${x}px`,
  top: `${y}px`,
  width: `${width}px`,
  height: `${height}px`,
});

/** @param shown The box whose edges are brought out. */
function drawEdges(canvas: HTMLCanvasElement, places: Placed, shown: number, zoom: number) {
  const { width, height, paths } = places;
  const sharp = Math.min(devicePixelRatio * zoom, Math.sqrt(16e6 / (width * height)));
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  const context = contextOf(canvas);
  context.scale(sharp, sharp);
  const style = getComputedStyle(canvas);
  const [plain, skip, strong] = ["--hv-dim", "--hv-skip", "--hv-accent"].map((name) =>
    style.getPropertyValue(name)
  );
  const skips = paths.filter((path) => path.skip).length;
  const touches = ({ from, to }: Path) => shown >= 0 && (from === shown || to === shown);
  const order = [...paths].sort((a, b) =>
    Number(touches(a)) - Number(touches(b)) || Number(b.skip) - Number(a.skip)
  );
  for (const path of order) {
    const isOn = touches(path);
    context.strokeStyle = context.fillStyle = isOn ? strong : path.skip ? skip : plain;
    context.globalAlpha = isOn ? 1 : path.skip ? Math.max(0.25, Math.min(0.9, 14 / skips)) : 0.85;
    context.lineWidth = isOn ? 2 : 1.3;
    strokePath(context, path);
  }
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
