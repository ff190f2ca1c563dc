// A text field that finds one of many: what is typed filters the list below it.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Breakable } from "./controls.tsx";

interface Item {
  key: string;
  name: string;
  more: string;
}

const LISTED = 200; // that are listed at once
const WRITTEN = /^(hookviz\.)?output[[.]|\S [-−] \S/; // a number in the output, or one class against another
const TARGET = "target"; // the key of a text that is more than a name
let fields = 0;

interface Props {
  label: string;
  hint: string;
  /** Shown where nothing is found. */
  none: string;
  items: Item[];
  onChoose: (key: string) => void;
  /** Takes a text that is more than a name. */
  onText?: (text: string) => void;
  hidden?: boolean;
  focused?: boolean;
  /** Called once something is chosen, and where the focus or Escape leaves the field. */
  onLeave?: () => void;
}

/** A combobox. */
export function Search(props: Props) {
  const { label, hint, none, items, onChoose, onText } = props;
  const [id] = useState(() => `hv-search-${fields++}-${Math.floor(performance.now())}`);
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [place, setPlace] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const found = open ? matching(items, text) : [];
  const written = text.trim();
  if (open && onText && WRITTEN.test(written)) {
    found.unshift({ key: TARGET, name: written, more: "as the target" });
  }
  const listed = found.slice(0, LISTED);
  const note = !found.length
    ? none
    : found.length > LISTED
    ? `${found.length - LISTED} more: type on`
    : "";
  useLayoutEffect(() => {
    if (props.focused) input.current?.focus();
  }, []);
  useLayoutEffect(() => {
    if (open) list.current?.children[place]?.scrollIntoView({ block: "nearest" });
  }, [open, place]);
  const show = (to: number) => {
    setOpen(true);
    setPlace(Math.max(Math.min(to, listed.length - 1), 0));
  };
  /** Without an item, the source says why the text is no target. */
  const take = (item: Item | undefined) => {
    if (!item) {
      if (!onText || !written) return; // the list says that nothing is found
      item = { key: TARGET, name: written, more: "" };
    }
    setText("");
    if (onText && item.key === TARGET) onText(item.name);
    else onChoose(item.key);
    leave();
  };
  const leave = () => {
    setOpen(false);
    props.onLeave?.();
  };
  const press = (event: KeyboardEvent) => {
    event.stopPropagation(); // letters and arrows are the field's own
    if (event.key === "ArrowDown") show(open ? place + 1 : 0);
    else if (event.key === "ArrowUp") show(place - 1);
    else if (event.key === "Enter" && open) take(listed[place]);
    else if (event.key === "Escape") leave();
    else return;
    event.preventDefault();
  };
  return (
    <div class="hv-search" hidden={props.hidden}>
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label={label}
        aria-expanded={open}
        aria-autocomplete="list"
        aria-controls={id}
        aria-activedescendant={open && listed.length ? `${id}-${place}` : undefined}
        autocomplete="off"
        spellcheck={false}
        placeholder={hint}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          show(0);
        }}
        onFocus={() => show(0)}
        onBlur={leave}
        onKeyDown={press}
      />
      <div ref={list} class="hv-list" role="listbox" id={id} aria-label={label} hidden={!open}>
        {listed.map((item, n) => (
          <div
            key={item.key}
            class={`hv-option${n === place ? " hv-on" : ""}`}
            role="option"
            id={`${id}-${n}`}
            aria-selected={n === place}
            // Before the field loses the focus, and the list with it.
            onPointerDown={(event) => {
              event.preventDefault();
              take(item);
            }}
          >
            <b>
              <Breakable name={item.name} />
            </b>
            <span>{item.more}</span>
          </div>
        ))}
        {open && note && <div class="hv-none">{note}</div>}
      </div>
    </div>
  );
}

/** The items that hold every typed word: first those that hold them in their names. */
function matching(items: Item[], text: string) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (whole: string) => words.every((word) => whole.toLowerCase().includes(word));
  const isNamed = ({ name }: Item) => holds(name);
  const others = items.filter((item) => !isNamed(item) && holds(`${item.name} ${item.more}`));
  return [...items.filter(isNamed), ...others];
}
