// What both kinds of page do: they put the view that the address names into the still picture's place.

import { goToTarget, keepAddress, viewIn } from "./address.ts";
import { App } from "./app.ts";
import { Lesson } from "./lesson.tsx";
import type { Settings } from "./messages.d.ts";
import type { Source } from "./source.ts";

/**
 * @param settings Where the page opens without an address.
 * @param isReady Whether all that is drawn first has arrived.
 * @param begun Called with the view.
 */
export function openView(
  root: HTMLElement,
  source: Source,
  settings: Settings,
  isReady: (settings: Settings) => boolean,
  begun: (app: App) => void = () => {},
) {
  const { facts } = source;
  const linked = viewIn(location.hash, facts, settings);
  const ready = () => {
    if (!isReady(linked.settings)) return;
    source.listeners.delete(ready);
    root.replaceChildren();
    const app = new App(root, source, linked.settings, document);
    keepAddress(app, settings);
    if (linked.target !== null) goToTarget(app, linked.target);
    begun(app);
    if (facts.lesson) new Lesson(facts.lesson, app, root, linked.isLinked);
  };
  source.listeners.add(ready);
  ready();
}
