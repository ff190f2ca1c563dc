// The pictures of a notebook's explorer: those that were given, and where another one comes from.

import { Brush } from "./brush.ts";
import { button, el, setAttribute, setText, visible } from "./dom.ts";
import { Camera, listenForFiles } from "./intake.ts";
import type { AnyRequest, Thumbnail } from "./messages.d.ts";
import type { App } from "./app.ts";

const PART = 4e6; // bytes of a file in one message: servers refuse those of more than 10 MB
const MOST = 100e6;

/** A line of controls and thumbnails. */
export class Gallery {
  camera: Camera;
  reading: Promise<unknown> = Promise.resolve(); // the file that was given before
  file = el("input", {
    type: "file",
    accept: "image/*",
    hidden: true,
    "aria-label": "a picture's file",
  });
  lens: HTMLButtonElement;
  said = el("span", { class: "hv-dim", role: "status" });
  row = el("span", { class: "hv-gallery", role: "group", "aria-label": "pictures" });
  brush: Brush;
  root: HTMLDivElement;
  drawn = "";

  constructor(
    public app: App,
    public source: {
      thumbnails: Thumbnail[];
      idle: boolean;
      edit: (what: AnyRequest) => void;
      listeners: Set<() => void>;
    },
  ) {
    this.camera = new Camera(() => this.show(), app.ended.signal);
    this.file.addEventListener("change", () => {
      this.take(this.file.files?.[0] ?? null);
      this.file.value = "";
    });
    const open = button(
      "open picture …",
      "choose a picture; or drop or paste one",
      () => this.file.click(),
    );
    this.lens = button("camera", "show what the camera sees", () => this.toggleCamera());
    visible(this.lens, Boolean(navigator.mediaDevices?.getUserMedia));
    this.row.addEventListener("click", (event) => this.choose(event.target, event.shiftKey));
    this.brush = new Brush(app, source, () => source.thumbnails.length > 0);
    this.brush.button.addEventListener("click", () => this.camera.stop()); // what is painted on stands still
    this.root = el(
      "div",
      { class: "hv-line hv-intake" },
      open,
      this.lens,
      this.file,
      this.row,
      this.said,
    );
    app.parts.otherPictures.prepend(this.root);
    listenForFiles(app.root, (file) => {
      if (!this.root.hidden) this.take(file);
    });
    source.listeners.add(() => this.show());
    app.state.onChange((changed) => {
      if (changed.has("sample")) this.show();
    });
    this.show();
    app.reopen();
  }

  show() {
    const { thumbnails } = this.source;
    visible(this.root, thumbnails.length > 0);
    const { stream } = this.camera;
    setAttribute(this.lens, "aria-pressed", stream ? "true" : "false");
    setText(this.lens, stream ? "stop camera" : "camera");
    const key = thumbnails.map(({ key: own, sample, now }) => `${own} ${sample} ${now}`).join();
    if (key !== this.drawn) {
      this.drawn = key;
      const shown = thumbnails.length > 1 ? thumbnails : [];
      const focused = [...this.row.children].findIndex((each) => each === document.activeElement);
      this.row.replaceChildren(...shown.map((each) => thumbnailOf(each)));
      const again = this.row.children[focused];
      if (again instanceof HTMLElement) again.focus();
    }
    const { sample } = this.app.at;
    thumbnails.forEach((each, place) => {
      const made = this.row.children[place];
      if (made) {
        setAttribute(made, "aria-pressed", each.now && each.sample === sample ? "true" : "false");
      }
    });
  }

  /** @param beside Show it beside the present one; again: no longer. */
  choose(target: EventTarget | null, beside: boolean) {
    const made = target instanceof Element ? target.closest("button") : null;
    const found = made && this.source.thumbnails[[...this.row.children].indexOf(made)];
    if (!found) return;
    this.camera.stop();
    if (beside) this.source.edit({ set: "beside", key: found.key, sample: found.sample });
    else if (found.now) this.app.state.set({ sample: found.sample });
    else this.source.edit({ set: "again", key: found.key });
  }

  /** A file goes to the kernel as it is, which the model's own transform makes an input of. */
  async take(file: Blob | null) {
    if (!file) return this.say("What was dropped is not a file: drop a picture.");
    this.camera.stop();
    if (file.size > MOST) {
      return this.say(
        `The file has ${
          Math.round(file.size / 1e6)
        } MB, of at most 100: set explorer.image to its path.`,
      );
    }
    this.say("");
    return this.send(file, file instanceof File ? file.name : "pasted");
  }

  /**
   * Send files in the order in which they were given, however long each takes to be read.
   * @param again A camera's next frame: the thumbnail is that of the frame before.
   */
  async send(blob: Blob, name: string, again: boolean = false) {
    const { stream } = this.camera;
    const both = Promise.all([blob.arrayBuffer(), this.reading]);
    this.reading = both.catch(() => undefined);
    const bytes = new Uint8Array((await both)[0]);
    if (stream && this.camera.stream !== stream) return; // a frame, and something else was chosen
    const parts = Math.max(Math.ceil(bytes.length / PART), 1);
    for (let part = 0; part < parts; part++) {
      this.source.edit({
        set: "picture",
        name,
        part,
        parts,
        again,
        bytes: bytes.slice(part * PART, (part + 1) * PART),
      });
    }
  }

  async toggleCamera() {
    if (this.camera.stream) return this.camera.stop();
    this.say("");
    let frames = 0;
    try {
      await this.camera.start(async (frame) => {
        if (!this.source.idle) return; // the next frame is newer
        const canvas = new OffscreenCanvas(frame.width, frame.height);
        canvas.getContext("2d")?.putImageData(frame, 0, 0);
        const blob = await canvas.convertToBlob({ type: "image/png" });
        if (this.camera.stream) await this.send(blob, "camera", frames++ > 0);
      });
    } catch (error) {
      this.say((error as Error).message);
    }
    return undefined;
  }

  say(words: string) {
    setText(this.said, words);
  }
}

function thumbnailOf({ name, url }: Thumbnail) {
  const title = `${name}; Shift+click shows it beside the present one`;
  return el(
    "button",
    { class: "hv-thumbnail", type: "button", "aria-label": name, title },
    el("img", { src: url, alt: name }),
  );
}
