// Where another input comes from: a file, the clipboard, the camera.

import { Brush } from "./brush.tsx";
import { Canvas, OpenPicture, Toggle } from "./controls.tsx";
import { el } from "./dom.ts";
import { putPicture } from "./panel.tsx";
import type { Rgb } from "./resize.ts";
import type { JSX } from "preact";
import type { App } from "./app.ts";
import type { NetworkSource } from "./network.ts";

/** A picture's file as pixels, upright, as they are stored: three bytes each, alpha over white. */
export async function pixelsOf(blob: Blob): Promise<Rgb> {
  if (!(blob instanceof Blob)) throw new Error("Give a Blob or a File with a picture in it.");
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, {
      colorSpaceConversion: "none",
      premultiplyAlpha: "none",
      imageOrientation: "from-image",
    });
  } catch {
    const name = blob instanceof File && blob.name ? `'${blob.name}'` : "This file";
    throw new Error(
      `${name} is not a picture that this browser can read: give a PNG, JPEG or WebP.`,
    );
  }
  const { width, height } = bitmap;
  if (Math.max(width, height) > 100 * Math.min(width, height) && Math.max(width, height) > 1000) {
    throw new Error(`The picture is ${width}×${height} pixels: crop it first.`);
  }
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("This browser gives no more canvases.");
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return overWhite(context.getImageData(0, 0, width, height));
}

function overWhite({ data, width, height }: ImageData) {
  const pixels = new Uint8Array(3 * width * height);
  const at = (place: number) => data[place];
  for (let from = 0, to = 0; from < data.length; from += 4, to += 3) {
    const alpha = at(from + 3) / 255;
    const mixed = (
      value: number,
    ) => (alpha === 1 ? value : Math.round(255 + alpha * (value - 255)));
    pixels[to] = mixed(at(from));
    pixels[to + 1] = mixed(at(from + 1));
    pixels[to + 2] = mixed(at(from + 2));
  }
  return { pixels, width, height };
}

/**
 * Files that are dropped or pasted; what the clipboard has beside files is left alone.
 * @param root Marked while a file is dragged over `where`.
 */
export function listenForFiles(
  where: Node,
  root: HTMLElement,
  take: (file: File | null) => void,
) {
  const mark = (on: boolean) => root.classList.toggle("hv-takes-file", on);
  where.addEventListener("dragover", (event) => {
    event.preventDefault();
    mark((event as DragEvent).dataTransfer?.types.includes("Files") ?? false);
  });
  where.addEventListener("dragleave", (event) => {
    // The pointer's new place: null outside of the window.
    if (!where.contains((event as DragEvent).relatedTarget as Node | null)) mark(false);
  });
  where.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    mark(false);
    take((event as DragEvent).dataTransfer?.files[0] ?? null);
  });
  where.addEventListener("paste", (event) => {
    const file = (event as ClipboardEvent).clipboardData?.files[0];
    if (!file) return;
    event.preventDefault();
    event.stopPropagation();
    take(file);
  });
}

const NO_CAMERA = "No camera was found: connect one, or drop a picture.";
/** By the name of the browser's error. */
const REFUSALS: Record<string, string> = {
  NotAllowedError:
    "The browser refuses the camera: allow it in the address bar, or drop a picture.",
  NotReadableError: "The camera is in use: close the program that uses it, or drop a picture.",
};

/**
 * The camera: one frame after the other, each the newest when the maps of the one before are shown.
 */
export class Camera {
  stream: MediaStream | null = null;
  asking = false; // the browser asks its user

  /**
   * @param changed Called when it goes on or off.
   * @param signal Ends it with its view.
   */
  constructor(public changed: () => void, signal: AbortSignal) {
    const hidden = () => {
      if (document.hidden) this.stop();
    };
    document.addEventListener("visibilitychange", hidden, { signal });
    addEventListener("pagehide", () => this.stop(), { signal });
    signal.addEventListener("abort", () => this.stop());
  }

  async start(show: (frame: ImageData) => Promise<void>) {
    if (this.asking) return;
    this.asking = true;
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({
        video: { width: { ideal: 640 } },
        audio: false,
      });
    } catch (error) {
      throw new Error(REFUSALS[(error as Error).name] ?? NO_CAMERA);
    } finally {
      this.asking = false;
    }
    const { stream } = this;
    this.changed();
    const video = el("video", { muted: true, playsinline: true });
    video.srcObject = stream;
    try {
      await video.play();
    } catch {
      if (this.stream !== stream) return; // stopped before its first frame
      this.stop();
      throw new Error(NO_CAMERA);
    }
    const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const next = async () => {
      if (this.stream !== stream || !context) return;
      context.drawImage(video, 0, 0, canvas.width, canvas.height);
      await show(context.getImageData(0, 0, canvas.width, canvas.height));
      requestAnimationFrame(next);
    };
    next();
  }

  /** Its light goes out; the last picture stays. */
  stop() {
    if (!this.stream) return;
    for (const track of this.stream.getTracks()) track.stop();
    this.stream = null;
    this.changed();
  }
}

/** What the drawer of pictures has besides the output. */
export interface Pictures {
  isOffered: boolean;
  /** Whether two can be shown side by side. */
  pairs: boolean;
  brush: Brush;
  view: () => JSX.Element;
}

/** A button that starts and stops the camera. */
export function CameraToggle({ camera, onToggle }: { camera: Camera; onToggle: () => void }) {
  return (
    <Toggle
      title="show what the camera sees"
      aria-pressed={camera.stream !== null}
      onClick={onToggle}
    >
      {camera.stream ? "stop camera" : "camera"}
    </Toggle>
  );
}

/** The pictures of a page that runs its network. */
export class Intake implements Pictures {
  camera: Camera;
  brush: Brush;
  pairs = false;

  constructor(public app: App, public source: NetworkSource) {
    this.camera = new Camera(() => app.schedule(), app.ended.signal);
    this.brush = new Brush(app, source, this);
    listenForFiles(document, app.root, (file) => this.take(file));
    app.pictures = this;
    app.schedule();
  }

  get isOffered() {
    return Boolean(this.source.facts.net.transform && this.source.input.picture);
  }

  view() {
    const { source, camera } = this;
    return (
      <div class="hv-line hv-intake" hidden={!this.isOffered}>
        <OpenPicture onFile={(file) => this.take(file)} />
        <CameraToggle camera={camera} onToggle={() => this.toggleCamera()} />
        <Toggle
          title="the input before this one"
          disabled={!source.past.length}
          onClick={() => source.undo()}
        >
          undo
        </Toggle>
        <Toggle
          title="the picture that this page was made with"
          disabled={source.input === source.original}
          onClick={() => {
            camera.stop();
            source.again();
          }}
        >
          original picture
        </Toggle>
        {source.batch.length > 1 && source.batch.map((input, place) => (
          <button
            key={place}
            type="button"
            class="hv-thumbnail"
            title={`picture ${place}`}
            aria-pressed={input === source.input}
            onClick={() => {
              camera.stop();
              source.again(input);
              this.app.meetPicture();
            }}
          >
            <Canvas paint={(canvas) => putPicture(canvas, input.picture!)} deps={[input]} />
          </button>
        ))}
      </div>
    );
  }

  async take(file: Blob | null) {
    if (!file) return this.source.say("What was dropped is not a file: drop a picture.");
    this.camera.stop();
    try {
      await this.source.read(pixelsOf(file));
      return this.app.meetPicture();
    } catch (error) {
      return this.source.say((error as Error).message);
    }
  }

  async toggleCamera() {
    const { camera, source } = this;
    if (camera.stream) return camera.stop();
    this.brush.stop();
    const { past, input } = source;
    const failed = ({ message }: Error) => {
      camera.stop();
      source.say(message);
    };
    try {
      await camera.start((frame) =>
        source.film(overWhite(frame), () => Boolean(camera.stream)).catch(failed)
      );
      source.past = [...past.slice(-30), input];
    } catch (error) {
      failed(error as Error);
    }
    return undefined;
  }
}
