// The card beside a chosen position: its value, the channels that respond most there, and actions.

import { useLayoutEffect, useRef } from "preact/hooks";
import { Toggle } from "./controls.tsx";
import { sure } from "./dom.ts";
import { short } from "./numbers.ts";
import { positionIn } from "./state.ts";
import type { App } from "./app.ts";
import type { Layer } from "./layer.ts";
import type { Panel } from "./panel.tsx";
import type { Values } from "./state.ts";

const FIRST = 3; // channels that are named
const BESIDE = 14; // pixels between the position and the card

/** Where the card is: in the panel in which the position was chosen, until it is closed. */
export class Card {
  panel: Panel;
  dismissed: string | null = null; // the position at which it was closed

  constructor(public app: App) {
    const { input, map, slope } = app.parts;
    this.panel = map;
    for (const panel of [input, map, slope]) {
      panel.onChosen = () => {
        this.panel = panel;
        this.dismissed = null;
      };
    }
  }

  close() {
    this.dismissed = String(this.app.at.place);
    this.app.schedule();
  }
}

export function CardView({ card, panel }: { card: Card; panel: Panel }) {
  const { app } = card;
  const { shown } = app;
  const place = shown?.at.place ?? null;
  const root = useRef<HTMLDivElement>(null);
  const { k, x, y } = app.at.zoom;
  const isHere = card.panel === panel && shown && place && shown.data.width > 0 &&
    String(place) !== card.dismissed;
  useLayoutEffect(() => {
    const { current } = root;
    if (!current || !place) return;
    const put = () => beside(current, panel, app.root, { v: place[0], u: place[1] });
    if (app.root.clientWidth) return put();
    // A change of JupyterLab's theme takes the view's size away for a moment.
    const size = new ResizeObserver(() => app.root.clientWidth && put());
    size.observe(app.root);
    return () => size.disconnect();
  }, [isHere, String(place), k, x, y, app.width]);
  if (!isHere) return null;
  const { data, at: { channel } } = shown;
  const { source } = app;
  const hasWhy = app.parts.drawers.offered.has("why");
  if (hasWhy && source.switches) source.why?.({ ask: "prepare" });
  const brush = app.pictures?.isOffered ? app.pictures.brush : null;
  const canOcclude = brush && !data.header.parts && data.header.place !== null;
  const [row, column] = positionIn(place, data.header.size);
  return (
    <div ref={root} class="hv-card-here" role="group" aria-label="the chosen position">
      <div class="hv-card-head">
        <b>{data.header.size[0] > 1 ? `row ${row}, column ${column}` : `position ${column}`}</b>
        <button
          type="button"
          class="hv-close"
          aria-label="close the card"
          onClick={() => card.close()}
        >
          ✕
        </button>
      </div>
      <span>{`${data.word} ${channel}: ${app.valueAt(data, row, column)}`}</span>
      <Best app={app} data={data} at={shown.at} />
      <div class="hv-card-acts">
        {hasWhy && app.parts.drawers.open !== "why" && (
          <Toggle
            class="hv-toggle hv-why-offer"
            title="why is this value what it is? (key w)"
            onClick={() => app.parts.drawers.toggle("why")}
          >
            why?
          </Toggle>
        )}
        <Toggle
          title="sort the channels by how far their value here is above their mean (key b)"
          onClick={() => app.best()}
        >
          sort by this
        </Toggle>
        {canOcclude && (
          <Toggle
            title="paint over the input here and see how the prediction changes"
            onClick={() => brush.occlude(place[1], place[0])}
          >
            occlude here
          </Toggle>
        )}
      </div>
    </div>
  );
}

/** The channels that respond most here, measured against their own means. */
function Best({ app, data, at }: { app: App; data: Layer; at: Values }) {
  if (data.count < 2 || data.header.size.every((side) => side < 2)) return null;
  const { order, scores, words } = app.rankings.of(data, { ...at, order: "contrast" });
  if (!scores) return <div class="hv-card-best">{words}</div>;
  const best = Array.from(order).slice(0, FIRST).filter((channel) => Number(scores[channel]) > 0);
  if (!best.length) return null;
  return (
    <div class="hv-card-best">
      <span class="hv-dim">{`${data.word}s that respond most here, with z-scores`}</span>
      {best.map((channel) => (
        <Toggle
          key={channel}
          aria-pressed={channel === at.channel}
          title={`show ${data.word} ${channel}: its value here is ${
            short(Number(scores[channel]))
          } standard deviations above its mean`}
          onClick={() => app.goTo({ channel })}
        >
          <b>{channel}</b>
          {` ${Number(scores[channel]).toFixed(1)}`}
        </Toggle>
      ))}
    </div>
  );
}

/** Move the card to the right of the position, to its left where the view ends, or below it. */
function beside(
  card: HTMLElement,
  { frame: element, state }: Panel,
  root: HTMLElement,
  { u, v }: { u: number; v: number },
) {
  const { k, x, y } = state.values.zoom;
  const frame = element.getBoundingClientRect();
  const own = sure(card.parentElement).getBoundingClientRect();
  const whole = root.getBoundingClientRect();
  const right = frame.left + Math.min(Math.max(k * (u - x), 0), 1) * frame.width;
  const fits = right + BESIDE + card.offsetWidth < whole.right;
  const left = fits ? right + BESIDE : Math.max(right - BESIDE - card.offsetWidth, whole.left);
  const down = frame.top - own.top + Math.min(Math.max(k * (v - y), 0), 1) * frame.height;
  const lowest = frame.bottom - own.top - card.offsetHeight;
  const isBeside = fits || left + card.offsetWidth < right;
  card.style.left = `${left - own.left}px`;
  card.style.top = `${isBeside ? Math.max(0, Math.min(down - 20, lowest)) : down + BESIDE}px`;
}
