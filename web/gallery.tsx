// The pictures of a notebook's explorer: those that were given, and where another one comes from.

import { Brush } from "./brush.tsx";
import { OpenPicture } from "./controls.tsx";
import { Camera, CameraToggle, listenForFiles } from "./intake.tsx";
import type { Pictures } from "./intake.tsx";
import type { AnyRequest, Thumbnail } from "./messages.d.ts";
import type { App } from "./app.ts";

const PART = 4e6; // bytes of a file in one message: servers refuse those of more than 10 MB
const MOST = 100e6;

/** The pictures of a notebook's explorer. */
export class Gallery implements Pictures {
  camera: Camera;
  reading: Promise<unknown> = Promise.resolve(); // the file that was given before
  brush: Brush;
  pairs = true;
  words = "";

  constructor(
    public app: App,
    public source: {
      thumbnails: Thumbnail[];
      idle: boolean;
      busy: boolean;
      edit: (what: AnyRequest) => void;
      listeners: Set<() => void>;
    },
  ) {
    this.camera = new Camera(() => app.schedule(), app.ended.signal);
    this.brush = new Brush(app, source, this);
    listenForFiles(app.root, app.root, (file) => {
      if (this.isOffered) this.take(file);
    });
    app.pictures = this;
    app.reopen();
    app.schedule();
  }

  get isOffered() {
    return this.source.thumbnails.length > 0;
  }

  view() {
    const { thumbnails } = this.source;
    const { sample } = this.app.at;
    const several = thumbnails.length > 1 ? thumbnails : [];
    return (
      <div class="hv-line hv-intake" hidden={!this.isOffered}>
        <OpenPicture onFile={(file) => this.take(file)} />
        {navigator.mediaDevices && (
          <CameraToggle
            camera={this.camera}
            onToggle={() => this.toggleCamera()}
          />
        )}
        <span class="hv-gallery" role="group" aria-label="pictures">
          {several.map((each, place) => (
            <button
              key={place}
              type="button"
              class="hv-thumbnail"
              aria-label={each.name}
              aria-pressed={each.now && each.sample === sample}
              title={`${each.name}; Shift+click shows both side by side`}
              onClick={(event) => this.choose(each, event.shiftKey)}
            >
              <img src={each.url} alt={each.name} />
            </button>
          ))}
        </span>
        <span class="hv-dim" role="status">{this.words}</span>
      </div>
    );
  }

  /** @param beside Show it beside the present one; again: no longer. */
  choose({ key, sample, now }: Thumbnail, beside: boolean) {
    this.camera.stop();
    if (beside) this.source.edit({ set: "beside", key, sample });
    else if (now) this.app.state.set({ sample });
    else this.source.edit({ set: "again", key, sample });
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
    this.words = words;
    this.app.schedule();
  }
}
