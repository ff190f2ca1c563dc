// What leaves the view: its picture, its code, its link; and the help.

import { button, download, el, setText, sure, visible } from "./dom.ts";
import { historyButtons } from "./history.ts";
import { openHelp, openSheet } from "./help.ts";
import { Popup } from "./popup.ts";
import { presenterButton } from "./presenter.ts";
import { snapshot } from "./snapshot.ts";
import type { App } from "./app.ts";

/** The buttons at the end of the header. */
export class Tools {
  timer = 0;
  said = el("span", { class: "hv-dim", role: "status" });
  menu: Popup;
  written = el("textarea", {
    class: "hv-code",
    readonly: true,
    rows: 18,
    spellcheck: "false",
    "aria-label": "this view as PyTorch code",
  });
  note = el("p", { class: "hv-dim" });
  codeRoot: HTMLDivElement;

  constructor(public app: App) {
    const acts = [button("save picture", "the shown view as a PNG file", () => this.save())];
    if (app.source.file) {
      acts.push(
        button("save PDF", "the shown view as a figure", () => this.file("pdf", "application/pdf")),
      );
      acts.push(
        button(
          "save page",
          "the explorer as a page that needs no kernel",
          () => this.file("html", "text/html"),
        ),
      );
    }
    if (app.source.code) {
      acts.push(
        button("copy code", "this view without hookviz, as PyTorch code", () => this.code()),
      );
    }
    if (app.source.link) {
      acts.push(
        button("copy link", "this page at this view", () => this.copy(sure(app.source.link)(app))),
      );
    }
    this.menu = new Popup("Save ▾", "save or copy this view", ...acts);
    this.menu.sheet.classList.add("hv-acts");
    for (const act of acts) act.addEventListener("click", () => this.menu.close());
    const copy = button("copy", "copy the code", () => this.copy(this.written.value));
    this.codeRoot = el("div", {}, el("div", { class: "hv-line" }, copy, this.note), this.written);
    app.parts.buttons.append(
      this.said,
      ...historyButtons(app.history),
      this.menu.root,
      presenterButton(app.root, app.ended.signal),
      button("?", "keys, and a tour of half a minute: key ?", () => openHelp(app)),
    );
  }

  keys() {
    return { "Shift?": () => openHelp(this.app), "?": () => openHelp(this.app) };
  }

  /** The shown view as a file. */
  save() {
    const { parts, root } = this.app;
    const shown = [
      parts.title,
      parts.factsLine,
      parts.heading.name,
      parts.heading.words,
      parts.heading.number,
      parts.heading.by,
      parts.main,
    ];
    snapshot(root, shown).toBlob((blob) => {
      if (blob) download(blob, this.name("png"));
    });
  }

  /** Of what is shown. */
  name(ending: string) {
    const { facts, at } = this.app;
    const name = [facts.model, at.layer, at.channel].filter((each) => each !== "").join("-");
    return `${name.replace(/[^\p{L}\p{N}._-]+/gu, "-")}.${ending}`;
  }

  /** The kernel writes it. */
  async file(ending: string, type: string) {
    this.tell("writing …");
    const said = await this.app.source.file?.(ending, this.app.state.settings);
    this.tell(said?.none ?? "");
    if (said?.bytes) download(new Blob([said.bytes], { type }), this.name(ending));
  }

  /** The kernel writes it. */
  async code() {
    this.tell("writing …");
    const said = await this.app.source.code?.(this.app.state.settings);
    if (said?.none) this.tell(said.none);
    else if (said) await this.copy(said.code);
  }

  /** @param open In its drawer, of the view as it is now. */
  async showCode(open: boolean) {
    if (!open) return;
    setText(this.note, "writing …");
    const said = await this.app.source.code?.(this.app.state.settings);
    setText(this.note, said?.none || "of the view as it was when this was opened");
    this.written.value = said?.code ?? "";
    visible(this.written, Boolean(said?.code));
  }

  /** Into the clipboard; where that is not allowed, the text is shown, selected. */
  async copy(text: string) {
    try {
      await navigator.clipboard.writeText(text);
      this.tell("copied");
    } catch {
      this.tell("");
      const field = el("textarea", { readonly: true, rows: 16, "aria-label": "to copy" });
      field.value = text;
      openSheet(this.app, "to copy", field);
      field.select();
    }
  }

  tell(words: string) {
    setText(this.said, words);
    clearTimeout(this.timer);
    if (words === "copied") this.timer = setTimeout(() => setText(this.said, ""), 2000);
  }
}
