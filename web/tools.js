// Small tools at the top: the picture, the code, the link of what is shown; keys and tour.

import { download, el, setText, sure } from "./dom.js";
import { openHelp, openSheet } from "./help.js";
import { snapshot } from "./snapshot.js";

/** A row of buttons. */
export class Tools {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.timer = 0;
    const button = (/** @type {string} */ name, /** @type {string} */ title, /** @type {() => void} */ act) => {
      const made = el("button", { type: "button", class: "hv-toggle", title }, name);
      made.addEventListener("click", act);
      return made;
    };
    this.said = el("span", { class: "hv-dim", role: "status" });
    this.root = el("span", { class: "hv-tools-of-view" }, this.said);
    this.root.append(button("save picture", "the shown view as a PNG file", () => this.save()));
    if (app.source.code) this.root.append(button("copy code", "this view without hookviz, as PyTorch code", () => this.code()));
    if (app.source.link) this.root.append(button("copy link", "this page at this view", () => this.copy(sure(app.source.link)(app))));
    this.root.append(button("?", "keys, and a tour of half a minute: key ?", () => openHelp(app)));
    app.parts.titleLine.append(this.root);
  }

  keys() {
    return { "Shift?": () => openHelp(this.app), "?": () => openHelp(this.app) };
  }

  /** The shown view as a file. */
  save() {
    const { parts, root, facts, at } = this.app;
    const shown = [parts.title, parts.factsLine, parts.predictions.root, parts.heading.name, parts.heading.words, parts.heading.number, parts.heading.by, parts.main];
    const name = [facts.model, at.layer, at.channel].filter((each) => each !== "").join("-");
    snapshot(root, shown).toBlob((blob) => {
      if (blob) download(blob, `${name.replace(/[^\p{L}\p{N}._-]+/gu, "-")}.png`);
    });
  }

  /** The kernel writes it. */
  async code() {
    this.tell("writing …");
    const { source, state } = this.app;
    const said = await source.code?.(state.settings);
    if (said?.none) this.tell(said.none);
    else if (said) await this.copy(said.code);
  }

  /**
   * Into the clipboard; where that is not allowed, the text is shown, selected.
   * @param {string} text
   */
  async copy(text) {
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

  /** @param {string} words */
  tell(words) {
    setText(this.said, words);
    clearTimeout(this.timer);
    if (words === "copied") this.timer = setTimeout(() => setText(this.said, ""), 2000);
  }
}
