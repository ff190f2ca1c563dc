// JupyterLab's and Notebook's shortcuts are not for what has the focus here.

const LEFT_ALONE = "data-lm-suppress-shortcuts";

/**
 * Keep shortcuts from an element and what is in it. JupyterLab looks for the attribute from the
 * focused element outward, and finds shortcuts for any `:focus` on its way: arrows fold headings.
 * So the focused element has it, too.
 */
export function keepShortcutsFrom(root: HTMLElement) {
  root.setAttribute(LEFT_ALONE, "true");
  root.addEventListener("focusin", ({ target }) => {
    if (target instanceof Element) target.setAttribute(LEFT_ALONE, "true");
  });
}
