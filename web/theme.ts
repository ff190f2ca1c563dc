// Whether the surroundings are dark: those of an element, or of the frame that a page is in.

/** Whether an element is on a dark ground: its text is light. It costs a layout. */
export function isDark(element: Element) {
  const [r = 0, g = 0, b = 0] = (getComputedStyle(element).color.match(/[\d.]+/g) ?? []).map(
    Number,
  );
  return r + g + b > 384;
}

/** Call a function after each change of the theme; in a frame, follow what surrounds it. */
export function followTheme(changed: () => void = () => {}, signal?: AbortSignal) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed, { signal });
  const themes = new MutationObserver(changed); // JupyterLab's, VS Code's and marimo's
  for (const each of [document.documentElement, document.body]) {
    themes.observe(each, { attributeFilter: ["class", "data-jp-theme-light", "theme"] });
  }
  signal?.addEventListener("abort", () => themes.disconnect());
  addEventListener("message", ({ data, source }) => {
    if (globalThis.parent === globalThis.self || source !== globalThis.parent) return;
    if (typeof data?.hookvizDark !== "boolean") return;
    const isLight = String(!data.hookvizDark);
    // Writing the same value again would count as a change, and redraw the page.
    if (document.body.dataset.jpThemeLight !== isLight) {
      document.body.dataset.jpThemeLight = isLight;
    }
  }, { signal });
}
