// All parts of the page and their arrangement; `app.ts` decides what they show.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Progress } from "./ablation.tsx";
import { BrushView, Sheet } from "./brush.tsx";
import { ColourMenu, HeatmapMenu, InputCaption } from "./captions.tsx";
import { CardView } from "./card.tsx";
import { className } from "./classes.ts";
import { Colourbar } from "./colourbar.tsx";
import { Popup, Slider, Toggle } from "./controls.tsx";
import { DrawersView } from "./drawers.tsx";
import { EditsView } from "./edits.tsx";
import { ChannelRow, Finder, LayerWords, nameOf, ShownAfter } from "./heading.tsx";
import { MosaicView } from "./mosaic.tsx";
import { MapView } from "./mapView.tsx";
import { barsOf, Boxes, boxesOf, OutputView } from "./output.tsx";
import { PairView, Sides } from "./pair.tsx";
import { PanelView } from "./panel.tsx";
import { Predictions } from "./predictions.tsx";
import { Readings } from "./readings.tsx";
import { Ribbon, Scale } from "./ribbon.tsx";
import { Search } from "./search.tsx";
import { Strip } from "./strip.tsx";
import { Code, ToolButtons, ToolSheet } from "./tools.tsx";
import { WeightsPanel } from "./weights.tsx";
import { WhyPanel } from "./why.tsx";
import type { App } from "./app.ts";
import type { Drawer } from "./drawers.tsx";
import type { Panel } from "./panel.tsx";
import type { Running } from "./running.ts";

export function Face({ app }: { app: App }) {
  const { layers } = app.facts;
  const place = layers.findIndex(({ name }) => name === app.at.layer);
  return (
    <>
      <Gone app={app} />
      <Header app={app} />
      <LayerRow app={app} place={place} />
      <ChannelRow app={app} word={layers[place]?.attends ? "head" : "channel"} />
      <PairView app={app} />
      <Main app={app} />
      <Sides app={app} />
      <DrawersView drawers={app.parts.drawers} all={drawersOf(app)} />
      <ToolSheet tools={app.tools} />
    </>
  );
}

/** Why nothing new comes; it is pointed out again where something was asked in vain. */
function Gone({ app: { source: { gone, refused = 0 } } }: { app: App }) {
  const alert = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!refused) return;
    alert.current!.scrollIntoView({ block: "nearest" });
    alert.current!.animate([{ opacity: 0.2 }, { opacity: 1 }], 600);
  }, [refused]);
  return <div ref={alert} class="hv-gone" role="alert" hidden={!gone}>{gone}</div>;
}

function Header({ app }: { app: App }) {
  const { model, note, summary, verdict: { text, kind, details, layer } } = app.facts;
  const facts = summary.join(" · ");
  return (
    <div class="hv-title hv-header">
      <b class="hv-model">{model}</b>
      {/* It replaces the facts while there is a message. */}
      <b class="hv-said" role="status">{note}</b>
      <span class="hv-dim hv-facts" title={facts} hidden={Boolean(note)}>{facts}</span>
      <Popup
        class="hv-chip"
        words={text}
        label="the network's health"
        title={details || text}
        kind={kind}
        hidden={!text}
      >
        {(close) => (
          <>
            <p>{[text, details].filter(Boolean).join(". ")}</p>
            {layer !== null && (
              <Toggle
                onClick={() => {
                  close();
                  app.set({ layer });
                }}
              >
                {`go to ${layer || "(model)"}`}
              </Toggle>
            )}
          </>
        )}
      </Popup>
      <ToolButtons tools={app.tools} />
    </div>
  );
}

/** @param place Of the shown layer among all. */
function LayerRow({ app, place }: { app: App; place: number }) {
  const { facts: { layers }, source, isWaiting } = app;
  const { health, layer } = app.at;
  const coloured = { layers, measure: health, palette: app.colours.palette("viridis") };
  return (
    <div class="hv-row hv-layer-row">
      <div class="hv-dim hv-row-name">
        <span>layer</span>
        <Scale {...coloured} onMeasure={(measure) => app.state.set({ health: measure })} />
      </div>
      <div class="hv-map-of-layers" style={{ "--count": layers.length }}>
        <Ribbon
          {...coloured}
          now={layer}
          width={app.width}
          onChoose={(name) => app.set({ layer: name })}
        />
        <Slider
          label="layer"
          count={layers.length}
          position={place}
          words={`${nameOf({ name: layer })}, layer ${place + 1} of ${layers.length}`}
          hidden={layers.length < 2}
          onMove={(position) => app.set({ layer: layers[position]?.name })}
        />
      </div>
      <LayerWords
        layer={layers[place]}
        rank={`${place + 1} of ${layers.length}`}
        waiting={isWaiting ? (source.waiting ?? "on its way …") : ""}
      />
      <Finder app={app} />
    </div>
  );
}

/** The four columns, and what is below them. */
function Main({ app }: { app: App }) {
  const { parts: { input, map, slope, mosaic }, shown, heatmaps, facts, state, card } = app;
  const at = shown?.at ?? app.at;
  const data = shown?.data;
  const controls = { facts, state, at };
  const cardIn = (panel: Panel) => <CardView card={card} panel={panel} />;
  return (
    <div class="hv-main">
      <PanelView
        panel={input}
        head={<InputCaption {...controls} picture={app.picture} />}
        over={
          <>
            {app.picture && <Boxes app={app} />}
            {app.pictures && <Sheet brush={app.pictures.brush} />}
          </>
        }
        below={
          <>
            <Occlusion running={app.source.running} />
            <Colourbar name="heatmap" bar={heatmaps.bar} isHidden={!heatmaps.bar}>
              {app.picture && <HeatmapMenu {...controls} />}
            </Colourbar>
          </>
        }
        beside={cardIn(input)}
      />
      <PanelView
        panel={map}
        head={
          <>
            <span class="hv-label" title={map.label}>{map.label}</span>
            <span class="hv-dim" title={map.side}>{map.side}</span>
            <ShownAfter app={app} />
          </>
        }
        below={
          <Colourbar
            name="feature map"
            bar={app.bars.map}
            onChoose={(ends) => app.set({ ends })}
          >
            <ColourMenu {...controls} of="feature map" range="range of the colours" />
          </Colourbar>
        }
        beside={cardIn(map)}
      />
      <PanelView
        panel={slope}
        head={<span class="hv-label" title={slope.label}>{slope.label}</span>}
        below={app.bars.slope && (
          <Colourbar
            name="gradient"
            bar={app.bars.slope}
            onChoose={(ends) => app.set({ slopeEnds: ends })}
          >
            <span class="hv-dim hv-whole">{slope.side}</span>
            <ColourMenu {...controls} of="gradient" range="range of the gradient's colours" />
          </Colourbar>
        )}
        beside={cardIn(slope)}
      />
      <MosaicView mosaic={mosaic} onChoose={(channel) => app.goTo({ channel })} />
      <Answers app={app} />
      <div class="hv-readings">
        {data && (
          <Readings
            data={data}
            channel={at.channel}
            pairs={app.pointed ?? HINTS}
            hint={!app.pointed}
            notes={app.notes}
          />
        )}
      </div>
    </div>
  );
}

function Occlusion({ running }: { running?: Running }) {
  const job = running?.job;
  if (!job) return null;
  return (
    <Progress
      words={`${job.drops.length} of ${job.windows.length} runs`}
      button={job.stopped ? "go on" : "stop"}
      onToggle={() => running.toggle(job)}
    />
  );
}

const HINTS: Array<[string, string]> = [
  ["pointer", "point at a picture to read exact values, click to mark a position"],
  ["keys", "←→ channel, ↑↓ layer, ? all keys"],
];

/** The predictions, and other ways to choose a target. */
function Answers({ app }: { app: App }) {
  const { facts, source } = app;
  const { classes, predictions } = facts;
  const { count, names } = classes;
  const items = useMemo(
    () =>
      Array.from({ length: count }, (_, number) => ({
        key: String(number),
        name: className(classes, number),
        more: String(number),
      })),
    [names, count],
  );
  const boxes = boxesOf(source);
  const bars = barsOf(boxes);
  const wanted = Number(source.asking ?? NaN);
  const target = Number.isNaN(wanted)
    ? facts.target
    : { number: wanted, name: className(classes, wanted) };
  const box = bars.find(({ number }) => boxes[number].target === facts.target.written);
  const [shown, aim, words] = bars.length
    ? [
      bars,
      box ?? facts.target,
      source.write ? "its score as the target" : "making it the target needs the notebook",
    ]
    : [predictions, target, source.live ? "show its gradient and heatmaps" : "show its Grad-CAM"];
  const isTyped = Boolean(source.write) && count === 0; // the field takes a target
  const isAny = shown.length > 0 || count > 0 || isTyped || facts.target.name !== "nothing";
  return (
    <div
      class="hv-answers"
      hidden={!isAny && !app.output.maps.length}
    >
      <div class="hv-dim hv-over-list" hidden={!shown.length}>
        <span>prediction</span>
        <span>{source.live || !source.gone ? "click to explain" : ""}</span>
      </div>
      <Predictions
        predictions={shown}
        target={aim}
        words={words}
        onChoose={(number, minus) => app.toTarget(number, minus)}
      />
      <Search
        label="class whose gradient is shown"
        hint={isTyped
          ? "target: output[…]"
          : source.write
          ? "another class or output …"
          : "another class …"}
        none="no class is called that"
        items={items}
        hidden={count <= predictions.length && !isTyped}
        onChoose={(key) => app.toTarget(Number(key))}
        onText={source.write && ((text) => app.toWritten(text, false))}
      />
      <button
        type="button"
        class="hv-from-output"
        title="choose a value of the output as the target"
        hidden={!app.output.maps.length}
        onClick={() => app.parts.drawers.toggle("pictures")}
      >
        {source.write ? "choose a target in the output …" : "show the output …"}
      </button>
    </div>
  );
}

/** The tabs below the pictures, in their order. */
export function drawersOf(app: App): Drawer[] {
  const { facts: { edits, layers, choices }, source } = app;
  const reasons = Boolean(source.why) && !app.data?.header.query; // an attention head has no terms
  const holds = (what: "answers" | "weights") => source.holds?.(what) ?? true; // a page may have none
  return [
    {
      name: "why",
      isOffered: reasons && holds("answers"),
      label: "Why this value?",
      title: "why the value at the chosen position is what it is (key w)",
      content: (isOpen) => isOpen && <WhyPanel why={app.why} />,
    },
    {
      name: "weights",
      isOffered: reasons && holds("weights"),
      label: "Weights",
      title: "the kernels of this layer",
      content: (isOpen) => isOpen && <WeightsPanel app={app} />,
    },
    {
      name: "map",
      isOffered: Boolean(source.map),
      label: "Map",
      title: "the network as a map, its branches and skips (key m)",
      content: (isOpen) => isOpen && <MapView map={app.network} />,
    },
    {
      name: "edit",
      isOffered: source.live,
      label: "Edit",
      tab: edits?.length ? `Edit (${edits.length})` : undefined,
      title: "scale a channel, switch it off, paint on the input",
      content: () => (
        <>
          {app.source.live && <EditsView app={app} />}
          {app.pictures && <BrushView brush={app.pictures.brush} />}
        </>
      ),
    },
    {
      name: "pictures",
      isOffered: Boolean(app.pictures?.isOffered) || app.output.maps.length > 0,
      label: "Pictures",
      title: "another input; the output where it is a picture",
      content: () => (
        <div class="hv-other-pictures">
          {app.pictures?.view()}
          <OutputView output={app.output} />
        </div>
      ),
    },
    {
      name: "heatmaps",
      isOffered: layers.length > 1 && choices.heatmap.length > 0,
      label: "Heatmaps of all layers",
      title: "the heatmaps of all layers (key a)",
      content: (isOpen) =>
        isOpen && (
          <Strip
            row={app.heatmaps.row}
            now={app.at.layer}
            onChoose={(layer) => app.set({ layer })}
          />
        ),
    },
    {
      name: "code",
      isOffered: Boolean(source.code),
      label: "Code",
      title: "this view without hookviz, as PyTorch code",
      content: (isOpen) => isOpen && <Code tools={app.tools} />,
    },
  ];
}
