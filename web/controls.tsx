// Controls that several panels share.

/*! Preact (MIT): hookviz/static/preact.LICENSE.txt */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";

/** A canvas, painted again when one of `deps` changes. */
export function Canvas({ paint, deps, ...attributes }: JSX.IntrinsicElements["canvas"] & {
  paint: (canvas: HTMLCanvasElement) => void;
  deps: unknown[];
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => paint(canvas.current!), deps);
  return <canvas {...attributes} ref={canvas} />;
}

/** A layer's name, whose lines end after a dot or an underscore where they can. */
export function Breakable({ name }: { name: string }) {
  return <>{name.split(/(?<=[._])/).map((part, n) => [part, <wbr key={n} />])}</>;
}

export function Toggle(attributes: JSX.IntrinsicElements["button"]) {
  return <button type="button" class="hv-toggle" {...attributes} />;
}

/** A button that opens the browser's dialog to choose a picture. */
export function OpenPicture({ onFile }: { onFile: (file: File | null) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Toggle title="choose a picture; or drop or paste one" onClick={() => input.current?.click()}>
        open picture …
      </Toggle>
      <input
        ref={input}
        type="file"
        accept="image/*"
        hidden
        aria-label="a picture's file"
        onChange={({ currentTarget: { files } }) => {
          onFile(files?.[0] ?? null);
          input.current!.value = ""; // so that the same file can be chosen again
        }}
      />
    </>
  );
}

export type Option = [value: string, name: string, disabled?: boolean];

/** A value that is not among the options is added to them. */
export function Menu({ label, title = label, options, value, onChoose, ...attributes }: {
  label: string;
  title?: string;
  options: Option[];
  value: string;
  onChoose: (value: string) => void;
  hidden?: boolean;
}) {
  const all = options.some(([own]) => own === value) ? options : [...options, [value, value]];
  return (
    <select
      {...attributes}
      aria-label={label}
      title={title}
      value={value}
      onChange={(event) => onChoose(event.currentTarget.value)}
    >
      {(all as Option[]).map(([own, name, disabled]) => (
        <option key={own} value={own} disabled={disabled}>{name}</option>
      ))}
    </select>
  );
}

/** A slider whose positions are whole numbers from 0. */
export function Slider({ label, count, position, words, onMove, ...attributes }: {
  label: string;
  count: number;
  position: number;
  words: string;
  onMove: (position: number) => void;
} & Pick<JSX.IntrinsicElements["input"], "title" | "class" | "hidden" | "onPointerMove">) {
  return (
    <input
      type="range"
      min={0}
      max={count - 1}
      step={1}
      value={position}
      disabled={count < 2}
      aria-label={label}
      aria-valuetext={words}
      title={label}
      {...attributes}
      onInput={(event) => onMove(Number(event.currentTarget.value))}
    />
  );
}

const EDGE = 4; // pixels between a sheet and the edge of the view

/** A button that opens a small sheet below it; Escape, or a click elsewhere, closes it. */
export function Popup({ words, label, title = label, kind, hidden, children, ...classes }: {
  /** On the button. */
  words: ComponentChildren;
  label: string;
  title?: string;
  kind?: string;
  hidden?: boolean;
  class?: string;
  sheetClass?: string;
  children: ComponentChildren | ((close: () => void) => ComponentChildren);
}) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLSpanElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const sheet = useRef<HTMLDivElement>(null);
  const close = () => setOpen(false);
  useLayoutEffect(() => {
    if (!open || !root.current || !sheet.current) return undefined;
    const ended = new AbortController();
    for (const move of ["pointerdown", "focusin"]) {
      const elsewhere = (event: Event) => event.composedPath().includes(root.current!) || close();
      addEventListener(move, elsewhere, { capture: true, signal: ended.signal });
    }
    const app = root.current.closest(".hookviz-app") ?? document.body;
    const { style } = sheet.current;
    style.translate = "";
    const [own, whole] = [sheet.current.getBoundingClientRect(), app.getBoundingClientRect()];
    const beyond = Math.max(own.right - whole.right + EDGE, 0);
    style.translate = `${Math.max(-beyond, whole.left + EDGE - own.left)}px`;
    return () => ended.abort();
  }, [open]);
  return (
    <span
      ref={root}
      class="hv-holder"
      hidden={hidden}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open) return;
        event.stopPropagation();
        close();
        button.current?.focus();
      }}
    >
      <button
        ref={button}
        type="button"
        class={`hv-opener ${classes.class ?? ""}`}
        title={title}
        data-kind={kind}
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        {words}
      </button>
      <div
        ref={sheet}
        class={`hv-popup ${classes.sheetClass ?? ""}`}
        role="group"
        aria-label={label}
        hidden={!open}
      >
        {typeof children === "function" ? children(close) : children}
      </div>
    </span>
  );
}
