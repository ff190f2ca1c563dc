// For a projector: larger text and pictures, full screen, and nothing drawn over the tiles.

import { el, setAttribute } from "./dom.ts";

/**
 * A button that turns it on and off; leaving the full screen turns it off.
 * @param root What is enlarged.
 * @param signal Ends what listens outside of it.
 */
export function presenterButton(root: HTMLElement, signal: AbortSignal) {
  const button = el("button", {
    type: "button",
    class: "hv-toggle",
    title: "larger, full screen, for a projector",
  }, "present");
  const show = (on: boolean) => {
    root.classList.toggle("hv-presenter", on);
    setAttribute(button, "aria-pressed", String(on));
  };
  setAttribute(button, "aria-pressed", "false");
  button.addEventListener("click", async () => {
    const on = !root.classList.contains("hv-presenter");
    show(on);
    try {
      if (on) await root.requestFullscreen();
      else if (document.fullscreenElement) await document.exitFullscreen();
    } catch {
      // a frame that may not fill the screen: large type is what is left
    }
  });
  document.addEventListener("fullscreenchange", () => {
    if (!document.fullscreenElement) show(false);
  }, { signal });
  return button;
}
