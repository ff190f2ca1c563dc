// What leaves the view: its picture, its code, its link; and the help.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Popup, Toggle } from "./controls.tsx";
import { download } from "./dom.ts";
import { Help, Sheet } from "./help.tsx";
import { stillOf } from "./still.ts";
import type { App } from "./app.ts";
import type { Written } from "./source.ts";

/** What the buttons at the end of the header do. */
export class Tools {
  timer = 0;
  words = "";
  about = "";
  presents = false;
  sheet: "help" | { copy: string } | null = null;

  constructor(public app: App) {}

  /** What can be saved or copied here: the button, its title, and what it does. */
  get acts() {
    const { file, code, link } = this.app.source;
    const acts: Array<[string, string, () => void]> = [];
    if (file) {
      acts.push(
        ["save picture", "the shown view as a PNG file", () => this.file("png", "image/png")],
        ["save PDF", "the shown view as a figure", () => this.file("pdf", "application/pdf")],
        [
          "save page",
          "the explorer as a page that needs no kernel",
          () => this.file("html", "text/html"),
        ],
      );
    } else {
      acts.push(
        ["save picture", "the shown view as a PNG file", () => this.picture()],
        ["print", "the shown view on paper, or as a PDF file", () => print()],
      );
    }
    if (code) {
      acts.push(["copy code", "this view without hookviz, as PyTorch code", () => this.code()]);
    }
    if (link) {
      acts.push(["copy link", "this page at this view", () => this.copy(location.href)]);
    }
    return acts;
  }

  /** @param sheet Over the view; null closes it. */
  open(sheet: "help" | { copy: string } | null) {
    this.sheet = sheet;
    this.app.schedule();
  }

  async present(on: boolean) {
    if (on === this.presents) return;
    this.presents = on;
    const { root } = this.app;
    root.classList.toggle("hv-presenter", on);
    this.app.schedule();
    try {
      if (on) await root.requestFullscreen();
      else if (document.fullscreenElement) await document.exitFullscreen();
    } catch {
      // full screen is not allowed here: the larger text and pictures stay
    }
  }

  /** Of what is shown. */
  name(ending: string) {
    const { facts, at } = this.app;
    const name = [facts.model, at.layer, at.channel].filter((part) => part !== "").join("-");
    return `${name.replace(/[^\p{L}\p{N}._-]+/gu, "-")}.${ending}`;
  }

  /** Where there is no kernel, the page draws it. */
  picture() {
    stillOf(this.app).toBlob((blob) => blob && download(blob, this.name("png")), "image/png");
  }

  /** The kernel writes it. */
  async file(ending: string, type: string) {
    this.tell("writing …");
    const said = await this.app.source.file?.(ending, this.app.state.settings);
    this.tell(said?.none ?? "");
    const file = said?.arrays.file?.values as Uint8Array<ArrayBuffer> | undefined;
    if (file) download(new Blob([file], { type }), this.name(ending));
  }

  /** The kernel writes it. */
  async code() {
    this.tell("writing …");
    const said = await this.app.source.code?.(this.app.state.settings);
    if (said?.none) this.tell(said.none);
    else if (said?.code) await this.copy(said.code);
  }

  /** Into the clipboard; where that is not allowed, the text is shown, selected. */
  async copy(text: string) {
    try {
      await navigator.clipboard.writeText(text);
      this.tell("copied");
    } catch {
      this.tell("");
      this.open({ copy: text });
    }
  }

  /** What words are about: they go when it changes. */
  get subject() {
    return JSON.stringify([this.app.state.settings, this.app.facts.run]);
  }

  tell(words: string) {
    this.words = words;
    this.about = this.subject;
    clearTimeout(this.timer);
    if (words === "copied") this.timer = setTimeout(() => this.tell(""), 2000);
    this.app.schedule();
  }
}

export function ToolButtons({ tools }: { tools: Tools }) {
  const { history } = tools.app;
  return (
    <span class="hv-tools-of-view">
      <span class="hv-popup hv-telling" role="status">
        {tools.about === tools.subject ? tools.words : ""}
      </span>
      <Toggle
        title="undo: edit, target, layer or channel (Ctrl+Z)"
        disabled={history.isFirst}
        onClick={() => history.go(-1)}
      >
        ↶
      </Toggle>
      <Toggle title="redo (Ctrl+Shift+Z)" disabled={history.isLast} onClick={() => history.go(1)}>
        ↷
      </Toggle>
      <Popup words="Save ▾" label="save or copy this view" sheetClass="hv-acts">
        {(close) =>
          tools.acts.map(([name, title, act]) => (
            <Toggle
              key={name}
              title={title}
              onClick={() => {
                act();
                close();
              }}
            >
              {name}
            </Toggle>
          ))}
      </Popup>
      <Present tools={tools} />
      <Toggle title="keys, and a tour of half a minute: key ?" onClick={() => tools.open("help")}>
        ?
      </Toggle>
    </span>
  );
}

/** The help, or the text to copy. */
export function ToolSheet({ tools }: { tools: Tools }) {
  const { sheet } = tools;
  const close = () => tools.open(null);
  if (!sheet) return null;
  if (sheet === "help") return <Help app={tools.app} onClose={close} />;
  return (
    <Sheet label="to copy" onClose={close}>
      <Selected text={sheet.copy} />
    </Sheet>
  );
}

function Selected({ text }: { text: string }) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current!.select(), []);
  return <textarea ref={field} readOnly rows={16} aria-label="to copy" value={text} />;
}

/** For a projector: larger text and pictures, full screen; leaving the full screen turns it off. */
function Present({ tools }: { tools: Tools }) {
  useEffect(() => {
    const changed = () => document.fullscreenElement || tools.present(false);
    document.addEventListener("fullscreenchange", changed);
    return () => document.removeEventListener("fullscreenchange", changed);
  }, []);
  return (
    <Toggle
      title="larger, full screen, for a projector; Escape leaves it"
      aria-pressed={tools.presents}
      onClick={() => tools.present(!tools.presents)}
    >
      present
    </Toggle>
  );
}

/** This view as code, as it was when the drawer was opened. */
export function Code({ tools }: { tools: Tools }) {
  const [said, setSaid] = useState<Written>({ none: "writing …", arrays: {} });
  const { app } = tools;
  useEffect(() => {
    app.source.code?.(app.state.settings).then(setSaid);
  }, []);
  return (
    <div>
      <div class="hv-line">
        <Toggle title="copy the code" onClick={() => tools.copy(said.code ?? "")}>copy</Toggle>
        <p class="hv-dim">{said.none || "of the view as it was when this was opened"}</p>
      </div>
      <textarea
        class="hv-code"
        readOnly
        rows={18}
        spellcheck={false}
        aria-label="this view as PyTorch code"
        hidden={!said.code}
        value={said.code}
      />
    </div>
  );
}
