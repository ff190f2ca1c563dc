// The entry of a training's widget: the kernel sends what has been recorded since.

import { keepShortcutsFrom } from "./shortcuts.js";
import { StepsView } from "./steps.js";

export default {
  /** Runs once, before any view: so the kernel knows that there is somebody who can draw.
   * @param {{model: any}} given
   */
  initialize({ model }) {
    model.set("alive", true);
    model.save_changes();
  },
  /** @param {{model: any, el: HTMLElement}} given */
  render({ model, el: place }) {
    const root = document.createElement("div");
    root.className = "hookviz-app";
    keepShortcutsFrom(root);
    root.addEventListener("keydown", (event) => event.stopPropagation());
    place.append(root);
    const view = new StepsView(root);
    const arrive = (/** @type {any} */ said, /** @type {DataView[]} */ buffers) => {
      const found = said.steps.map((/** @type {number} */ at, /** @type {number} */ place) => {
        const { buffer, byteOffset, byteLength } = /** @type {DataView} */ (buffers[place]);
        return [at, new Uint8Array(buffer, byteOffset, byteLength)];
      });
      view.take(said.facts, found);
    };
    model.on("msg:custom", arrive);
    model.send({ steps: "all" });
    return () => model.off("msg:custom", arrive);
  },
};
