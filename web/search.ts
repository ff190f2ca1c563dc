// A text field that finds one of many: what is typed filters the list below it.

import { el, setAttribute } from "./dom.ts";

interface Item {
  key: string;
  name: string;
  more: string;
}

const LISTED = 200; // that are listed at once
const WRITTEN = /^(hookviz\.)?output[[.]|\S [-−] \S/; // a number in the output, or one class against another
const WRITTEN_KEY = "written";
let fields = 0;

/** A combobox; `onChoose` gets an item's key. */
export class Search {
  id = `hv-search-${fields}-${Math.floor(performance.now())}`;
  input: HTMLInputElement;
  list: HTMLDivElement;
  root: HTMLDivElement;
  /** What is done with a text that is more than a name. */
  onText: ((text: string) => void) | null = null;
  items: Item[] = [];
  found: Item[] = [];
  place = 0;

  /** @param none What is said where nothing is found. */
  constructor(
    label: string,
    hint: string,
    public none: string,
    public onChoose: (key: string) => void,
  ) {
    fields += 1;
    this.input = el("input", {
      type: "text",
      role: "combobox",
      "aria-label": label,
      "aria-expanded": "false",
      "aria-autocomplete": "list",
      "aria-controls": this.id,
      autocomplete: "off",
      spellcheck: "false",
      placeholder: hint,
    });
    this.list = el("div", { class: "hv-list", role: "listbox", id: this.id, "aria-label": label });
    this.list.hidden = true;
    this.root = el("div", { class: "hv-search" }, this.input, this.list);
    this.listen();
  }

  /** Show those that hold every typed word. */
  open() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const holds = (item: Item) => {
      const text = `${item.name} ${item.more}`.toLowerCase();
      return words.every((word: string) => text.includes(word));
    };
    const found = this.items.filter(holds);
    const text = this.input.value.trim();
    if (this.onText && WRITTEN.test(text)) {
      found.unshift({ key: WRITTEN_KEY, name: text, more: "as the target" });
    }
    this.found = found.slice(0, LISTED);
    const options = this.found.map((item, place) =>
      el(
        "div",
        { class: "hv-option", role: "option", id: `${this.id}-${place}`, "data-place": place },
        el("b", {}, item.name),
        el("span", {}, item.more),
      )
    );
    const rest = found.length - this.found.length;
    const note = !found.length ? this.none : rest ? `${rest} more: type on` : "";
    if (note) options.push(el("div", { class: "hv-none" }, note));
    this.list.replaceChildren(...options);
    this.list.hidden = false;
    setAttribute(this.input, "aria-expanded", "true");
    this.light(0);
  }

  close() {
    this.list.hidden = true;
    setAttribute(this.input, "aria-expanded", "false");
    setAttribute(this.input, "aria-activedescendant", null);
  }

  light(place: number) {
    this.place = Math.min(Math.max(place, 0), this.found.length - 1);
    for (const option of this.list.querySelectorAll<HTMLElement>(".hv-option")) {
      const on = option.dataset.place === String(this.place);
      option.classList.toggle("hv-on", on);
      setAttribute(option, "aria-selected", on ? "true" : "false");
      if (on) {
        option.scrollIntoView({ block: "nearest" });
        setAttribute(this.input, "aria-activedescendant", option.id);
      }
    }
  }

  take(place: number) {
    const item = this.found[place];
    this.close();
    this.input.value = "";
    if (item?.key === WRITTEN_KEY) this.onText?.(item.name);
    else if (item) this.onChoose(item.key);
  }

  listen() {
    const { input, list } = this;
    input.addEventListener("input", () => this.open());
    input.addEventListener("focus", () => this.open());
    input.addEventListener("blur", () => this.close());
    input.addEventListener("keydown", (event: KeyboardEvent) => {
      event.stopPropagation(); // letters and arrows are the field's own
      const shown = !list.hidden;
      if (event.key === "ArrowDown") shown ? this.light(this.place + 1) : this.open();
      else if (event.key === "ArrowUp") this.light(this.place - 1);
      else if (event.key === "Enter" && shown) this.take(this.place);
      else if (event.key === "Escape") this.close();
      else return;
      event.preventDefault();
    });
    // Before the field loses the focus, and the list with it.
    list.addEventListener("pointerdown", (event: PointerEvent) => {
      event.preventDefault();
      const option = (event.target as HTMLElement).closest(".hv-option");
      if (option instanceof HTMLElement) this.take(Number(option.dataset.place));
    });
  }
}
