// The entry of a training's widget: the kernel sends what has been recorded since.

import { keepShortcutsFrom } from "./shortcuts.ts";
import { Steps } from "./steps.tsx";
import type { StepsFacts } from "./recorded.ts";
import type { WidgetModel } from "./model.ts";

/** What the kernel sends: facts, and the numbers of the steps whose bytes come beside them. */
interface StepsMessage {
  facts: StepsFacts;
  steps: number[];
}

export default {
  /** Runs once, before any view: so the kernel knows that there is somebody who can draw. */
  initialize({ model }: { model: WidgetModel }) {
    model.set("alive", true);
    model.save_changes();
  },
  render({ model, el: place }: { model: WidgetModel; el: HTMLElement }) {
    const root = document.createElement("div");
    root.className = "hookviz-app";
    keepShortcutsFrom(root);
    root.addEventListener("keydown", (event) => event.stopPropagation());
    place.append(root);
    const view = new Steps(root);
    const arrive = (said: StepsMessage, buffers: DataView[]) => {
      const found = said.steps.map((at, place): [number, Uint8Array] => {
        const { buffer, byteOffset, byteLength } = buffers[place];
        return [at, new Uint8Array(buffer, byteOffset, byteLength)];
      });
      view.take(said.facts, found);
    };
    model.on("msg:custom", arrive);
    model.send({ steps: "all" });
    return () => model.off("msg:custom", arrive);
  },
};
