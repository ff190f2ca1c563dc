// A brush, a rectangle and an eraser on the input: pixels are marked here, and the source changes them.

import { useLayoutEffect, useRef } from "preact/hooks";
import { Menu, Toggle } from "./controls.tsx";
import { visitDisc } from "./strokes.ts";
import type { App } from "./app.ts";
import type { Camera } from "./intake.tsx";
import type { AnyRequest } from "./messages.d.ts";

interface Spot {
  u: number;
  v: number;
}

const TOOLS = ["brush", "rectangle", "eraser"];

/** The tool that paints on the input; a stroke is marked until its result is shown. */
export class Brush {
  isOn = false;
  tool = "brush";
  radius = 0.06; // as a share of the picture's width
  mask: Uint8Array | null = null; // the pixels of the stroke that is being made
  from: Spot | null = null; // where a rectangle begins, or the stroke was last
  cursor: Spot = { u: 0.5, v: 0.5 }; // of the keys
  isSent = false;
  measures: [number, number] | null = null; // height and width of the input that was painted on last
  sheet: HTMLCanvasElement | null = null;

  /** @param pictures Whether there is an input that can be painted over, and the camera. */
  constructor(
    public app: App,
    public source: { edit: (what: AnyRequest) => void; busy: boolean },
    public pictures: { isOffered: boolean; camera: Camera },
  ) {}

  /** The input of the latest run; null until it is here. */
  get picture() {
    const { data, source } = this.app;
    return data && source.picture(data.header.place);
  }

  /** Measure the input; while the picture of a new run is on its way, that of the last one counts. */
  measure() {
    const { picture } = this;
    if (picture) {
      this.measures = (picture.size ?? [picture.height, picture.width]) as [number, number];
    }
    return this.measures;
  }

  toggle() {
    this.pictures.camera.stop(); // the picture must not change below the brush
    this.isOn = !this.isOn;
    this.app.schedule();
  }

  stop() {
    this.isOn = false;
    this.app.schedule();
  }

  press(event: KeyboardEvent) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const step = steps[event.key as keyof typeof steps];
    const { cursor } = this;
    const inside = (share: number) => Math.min(Math.max(share, 0), 1);
    if (event.ctrlKey || event.metaKey) return;
    if (step) {
      this.cursor = {
        u: inside(cursor.u + this.radius * Number(step[0])),
        v: inside(cursor.v + this.radius * Number(step[1])),
      };
    } else if (event.key === " ") {
      const far = this.tool === "rectangle" ? this.radius : 0;
      this.begin({ u: cursor.u - far, v: cursor.v - far });
      this.go({ u: cursor.u + far, v: cursor.v + far });
      this.end();
    } else if (event.key === "Escape") this.stop();
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (step) this.app.state.set({ hover: [this.cursor.v, this.cursor.u] });
  }

  begin(spot: Spot) {
    const size = this.measure();
    if (!size) return;
    this.mask = new Uint8Array(size[0] * size[1]);
    this.from = spot;
    this.isSent = false;
    this.go(spot);
  }

  go(spot: Spot) {
    const [height, width] = this.measures ?? [0, 0];
    const { from, mask, radius } = this;
    if (!mask || !from) return;
    if (this.tool === "rectangle") {
      const [left, right] = [from.u, spot.u].sort((a, b) => a - b);
      const [top, bottom] = [from.v, spot.v].sort((a, b) => a - b);
      const first = (share: number | undefined, count: number) =>
        Math.max(Math.round(Number(share) * count), 0);
      mask.fill(0);
      for (let row = first(top, height); row < Math.min(first(bottom, height), height); row++) {
        mask.fill(
          1,
          row * width + first(left, width),
          row * width + Math.min(first(right, width), width),
        );
      }
    } else {
      const far = Math.hypot((spot.u - from.u) * width, (spot.v - from.v) * height);
      const steps = Math.max(1, Math.ceil(far / Math.max(radius * width * 0.5, 0.5)));
      for (let step = 0; step <= steps; step++) {
        const share = step / steps;
        visitDisc(
          width,
          height,
          from.u + share * (spot.u - from.u),
          from.v + share * (spot.v - from.v),
          radius,
          (pixel) => {
            mask[pixel] = 1;
          },
        );
      }
      this.from = spot;
    }
    this.draw();
  }

  /** Draw the mask at once, not in the next frame of the view. */
  draw() {
    const [height, width] = this.measures ?? [1, 1];
    const { mask, sheet } = this;
    if (!sheet) return;
    sheet.width = width;
    sheet.height = height;
    const context = sheet.getContext("2d");
    if (!mask || !context) return;
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    mask.forEach((marked, place) => {
      if (marked) pixels[place] = 0x990070d9; // the accent, half through
    });
    context.putImageData(image, 0, 0);
  }

  end() {
    const { mask } = this;
    const size = this.measures;
    if (!mask || !size) return;
    this.mask = null;
    if (!mask.includes(1)) return;
    if (this.app.at.shown_run === "original") this.app.state.set({ shown_run: "edited" });
    this.isSent = true;
    this.source.edit({
      set: this.tool === "eraser" ? "erase" : "paint",
      shape: size,
      bytes: mask,
    });
  }

  /** Paint over a square around a position of the input. */
  occlude(u: number, v: number) {
    const { tool } = this;
    this.tool = "rectangle";
    const [height, width] = this.measure() ?? [1, 1];
    this.begin({ u: u - this.radius, v: v - (this.radius * width) / height });
    this.go({ u: u + this.radius, v: v + (this.radius * width) / height });
    this.end();
    this.tool = tool;
  }

  cancel() {
    this.mask = null;
    this.draw();
  }

  /** Remove the mark of a stroke once the picture of the new run shows it. */
  clear() {
    if (!this.isSent || this.mask || this.source.busy || !this.picture) return;
    this.isSent = false;
    this.draw();
  }
}

/** The brush's controls. */
export function BrushView({ brush }: { brush: Brush }) {
  const { app, isOn } = brush;
  const size = "size of brush and eraser";
  const choose = (tool: string) => {
    brush.tool = tool;
    app.schedule();
  };
  return (
    <div class="hv-line hv-hands" hidden={!brush.pictures.isOffered}>
      <span class="hv-dim hv-what">paint over the input:</span>
      <Toggle
        title="paint over a part of the input and see how the prediction changes"
        aria-pressed={isOn}
        onClick={() => brush.toggle()}
      >
        paint
      </Toggle>
      <span class="hv-line" hidden={!isOn}>
        <Menu
          label="tool"
          title="brush and rectangle fill with the mean colour; the eraser restores"
          options={TOOLS.map((tool) => [tool, tool])}
          value={brush.tool}
          onChoose={choose}
        />
        <input
          type="range"
          min={1}
          max={50}
          value={200 * brush.radius}
          title={size}
          aria-label={size}
          onInput={({ currentTarget: { value } }) => {
            brush.radius = Number(value) / 200;
          }}
        />
      </span>
    </div>
  );
}

/** The sheet over the input on which the pointer and the keys paint. */
export function Sheet({ brush }: { brush: Brush }) {
  const { isOn } = brush;
  const sheet = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    brush.sheet = sheet.current;
    if (isOn) sheet.current!.focus();
  }, [isOn]);
  useLayoutEffect(() => brush.clear());
  const at = ({ clientX, clientY }: PointerEvent) => {
    const box = sheet.current!.getBoundingClientRect();
    return { u: (clientX - box.x) / box.width, v: (clientY - box.y) / box.height };
  };
  // The panel below would choose a position.
  const own = <E extends Event>(act: (event: E) => void = () => {}) => (event: E) => {
    event.stopPropagation();
    act(event);
  };
  return (
    <canvas
      ref={sheet}
      class="hv-brush"
      hidden={!isOn}
      tabIndex={0}
      aria-label="paint here; by keyboard: arrow keys, then space"
      style={{ transform: brush.app.parts.input.transform, transformOrigin: "0 0" }}
      onPointerDown={own((event) => {
        if (event.button) return;
        sheet.current!.setPointerCapture(event.pointerId);
        brush.begin(at(event));
      })}
      onPointerMove={own((event) => {
        if (brush.mask && event.buttons & 1) brush.go(at(event));
      })}
      onPointerUp={own(() => brush.end())}
      onPointerCancel={() => brush.cancel()}
      onDblClick={own()}
      onKeyDown={(event) => brush.press(event)}
    />
  );
}
