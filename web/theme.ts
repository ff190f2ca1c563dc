// Whether a page is dark: as the system, or as the notebook in whose frame it is.

const SYSTEM = matchMedia("(prefers-color-scheme: dark)");

export const isDarkPage = () => document.body.dataset.jpThemeLight === "false" || SYSTEM.matches;

/** Call a function after each change of the theme; in a frame, follow the notebook's. */
export function followTheme(changed: () => void = () => {}, signal?: AbortSignal) {
  SYSTEM.addEventListener("change", changed, { signal });
  addEventListener("message", ({ data, source }) => {
    if (globalThis.parent === globalThis.self || source !== globalThis.parent) return;
    if (typeof data?.hookvizDark !== "boolean") return;
    document.body.dataset.jpThemeLight = String(!data.hookvizDark);
    changed();
  }, { signal });
}
