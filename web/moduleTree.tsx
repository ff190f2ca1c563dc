// The modules of a model; a click or Enter chooses one, up and down move the focus.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

/**
 * @param modules Name and type, as `named_modules()` has them.
 * @param lit The module of the shown event.
 * @param side Whether that event is in the forward or the backward.
 * @param enabled The modules that can be chosen.
 */
export function ModuleTree({ modules, lit, side, enabled, onPick }: {
  modules: Array<[name: string, type: string]>;
  lit: number;
  side: string;
  enabled: Set<number>;
  onPick: (place: number) => void;
}) {
  const tree = useRef<HTMLDivElement>(null);
  const [focused, setFocused] = useState<number | null>(null);
  useLayoutEffect(() => {
    const { scrollTop, clientHeight: room, children } = tree.current!;
    const { offsetTop: top, offsetHeight: high } = children[lit] as HTMLElement;
    if (top < scrollTop || top + high > scrollTop + room) {
      tree.current!.scrollTop = top - (room - high) / 2;
    }
  }, [lit]);
  const pick = (place: number) => enabled.has(place) && onPick(place);
  const press = (event: KeyboardEvent, place: number) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (by) (tree.current!.children[place + by] as HTMLElement | undefined)?.focus();
    else if (event.key === "Enter" || event.key === " ") pick(place);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div ref={tree} class="hv-tree" role="tree" aria-label="modules">
      {modules.map(([name, type], place) => {
        const level = name ? name.split(".").length : 0;
        const isLit = place === lit;
        return (
          <div
            key={name}
            class="hv-module"
            style={{ "--level": level }}
            role="treeitem"
            // Tab reaches one row.
            tabIndex={place === (focused ?? lit) ? 0 : -1}
            title={name || "the model"}
            data-side={isLit ? side : undefined}
            aria-label={`${name || "(model)"} ${type}`}
            aria-level={level + 1}
            aria-current={isLit ? "true" : undefined}
            aria-disabled={enabled.has(place) ? undefined : "true"}
            onClick={() => pick(place)}
            onFocus={() => setFocused(place)}
            onBlur={() => setFocused(null)}
            onKeyDown={(event) => press(event, place)}
          >
            <i aria-hidden="true" />
            <b>{name.split(".").pop() || "(model)"}</b>
            <span class="hv-dim">{type}</span>
          </div>
        );
      })}
    </div>
  );
}
