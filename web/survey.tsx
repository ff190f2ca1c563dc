// The entry of a survey's page: channels with their patches, to be searched and sorted.

import { render } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Menu } from "./controls.tsx";
import { readJson } from "./dom.ts";
import { followTheme } from "./theme.ts";

const AT_ONCE = 48; // channels that are added at once

const KEYS: Record<string, "largest" | "purity" | "zeros"> = {
  "largest value": "largest",
  purity: "purity",
  zeros: "zeros",
};

interface Channel {
  channel: number;
  words: string[];
  captions: string[];
  picture: string;
  largest?: number;
  purity?: number;
  zeros?: number;
}

interface Facts {
  title: string;
  words: string;
  notes: string[];
  layers: Array<{ name: string; words: string }>;
  orders: string[];
  patches: number;
  start: { layer: number; channel: number; order: string } | null;
}

/** The channels of a layer, each with the layer's name and the text of its card, to search in. */
function channelsOf(layer: string, place: number) {
  const channels: Channel[] = readJson(`layer-${place}`) ?? [];
  return channels.map((each) => ({
    ...each,
    layer,
    text: [layer, `channel ${each.channel}`, ...each.words, ...each.captions, ""]
      .join(", ").replaceAll(",", " ,").toLowerCase(),
  }));
}

/** A number is that of the channel, or it follows a word as on the card: "ring 3". */
function fits({ channel, text }: { channel: number; text: string }, typed: string[]) {
  return typed.every((word, place) =>
    /^\d+$/.test(word)
      ? channel === Number(word) || (place > 0 && text.includes(`${typed[place - 1]} ${word} `))
      : text.includes(word)
  );
}

/** All that is on the page. */
function Survey({ facts: { title, words, notes, layers, orders, patches, start } }: {
  facts: Facts;
}) {
  const [chosen, setChosen] = useState({
    layer: String(start?.layer ?? layers.length - 1),
    order: start?.order ?? orders[0],
    typed: "",
    first: start?.channel, // those before it come last
    count: AT_ONCE,
  });
  const { layer, order, typed, first, count } = chosen;
  const choose = (change: Partial<typeof chosen>) =>
    setChosen({ ...chosen, first: undefined, count: AT_ONCE, ...change });
  const isAll = layer === "all";
  const every = useMemo(
    () =>
      layers.flatMap(({ name }, place) =>
        isAll || place === Number(layer) ? channelsOf(name, place) : []
      ),
    [layer],
  );
  const found = useMemo(() => {
    const typedWords = typed.toLowerCase().split(/[\s,]+/).filter(Boolean);
    const fitting = every.filter((each) => fits(each, typedWords));
    const key = KEYS[order];
    if (key) fitting.sort((a, b) => (b[key] ?? -Infinity) - (a[key] ?? -Infinity));
    const lead = Math.max(fitting.findIndex(({ channel }) => channel === first), 0);
    return [...fitting.slice(lead), ...fitting.slice(0, lead)];
  }, [every, order, typed, first]);
  const more = useRef<HTMLButtonElement>(null);
  const add = () => setChosen((before) => ({ ...before, count: before.count + AT_ONCE }));
  // Where a page is scrolled to its end, there is more.
  useLayoutEffect(() => {
    new IntersectionObserver((seen) => {
      if (seen.some(({ isIntersecting }) => isIntersecting)) add();
    }).observe(more.current!);
  }, []);
  const of = found.length === every.length ? "" : ` of ${every.length}`;
  return (
    <>
      <div class="hv-line">
        <h2 class="hv-name">{title}</h2>
        <span class="hv-dim">{words}</span>
      </div>
      {notes.map((note) => <p key={note} class="hv-dim">{note}</p>)}
      <div class="hv-line hv-tools">
        <Menu
          label="layer"
          options={[
            ...layers.map(({ name, words }, place): [string, string] => [
              String(place),
              `${name} · ${words}`,
            ]),
            ["all", "all layers"],
          ]}
          value={layer}
          onChoose={(layer) => choose({ layer })}
        />
        <Menu
          label="order of the channels"
          options={orders.map((name) => [name, `by ${name}`])}
          value={order}
          onChoose={(order) => choose({ order })}
        />
        <input
          type="search"
          class="hv-typed"
          aria-label="find channels"
          placeholder="find: a class, a number, words …"
          spellcheck={false}
          value={typed}
          onInput={(event) => choose({ typed: event.currentTarget.value })}
        />
        <span class="hv-dim" role="status">{`${found.length}${of} channels`}</span>
      </div>
      <div class="hv-cards" style={{ "--patches": Math.max(patches, 3) }}>
        {found.slice(0, count).map((each) => (
          <Card key={`${each.layer} ${each.channel}`} {...each} isAll={isAll} />
        ))}
      </div>
      <button ref={more} type="button" hidden={found.length <= count} onClick={add}>
        {`${found.length - count} more`}
      </button>
    </>
  );
}

/** @param isAll Whether channels of all layers are shown. */
function Card({ layer, channel, words, captions, picture, isAll }: Channel & {
  layer: string;
  isAll: boolean;
}) {
  const name = `${isAll ? `${layer}, ` : ""}channel ${channel}`;
  const alt = `the top pictures of ${layer}, channel ${channel}: ${captions.join(", ")}`;
  return (
    <section class="hv-card" aria-label={name}>
      <div class="hv-said">
        <b>{name}</b>
        {words.map((word, place) => <span key={place} class="hv-dim">{word}</span>)}
      </div>
      <img alt={alt} src={picture} decoding="async" />
      <div class="hv-captions">
        {captions.map((caption, place) => <span key={place} title={caption}>{caption}</span>)}
      </div>
    </section>
  );
}

followTheme();
const root = document.getElementById("hookviz");
if (root) {
  root.replaceChildren();
  render(<Survey facts={readJson("facts")} />, root);
}
