// The model of a widget, as anywidget hands it over: traits that are synchronized, and messages.

import type { Facts, Moved, Overview, Settings, Thumbnail } from "./messages.d.ts";

/** The traits that the browser reads or sets. */
interface Traits {
  alive: boolean;
  facts: Facts;
  moved: Moved;
  note: string;
  overview: Overview;
  pictures: Thumbnail[];
  seen: number;
  settings: Settings;
  stops: number;
  token: string;
}

/** A kernel as JupyterLab's widget manager shows it. */
export interface Kernel {
  status?: string;
  statusChanged?: Record<
    "connect" | "disconnect",
    (slot: (kernel: unknown, status: string) => void, self: unknown) => void
  >;
}

type Listener = (said: never, buffers: DataView[]) => void;

export interface WidgetModel {
  get: <Name extends keyof Traits>(name: Name) => Traits[Name];
  set: <Name extends keyof Traits>(name: Name, value: Traits[Name]) => void;
  save_changes: () => void;
  on: (event: string, listener: Listener) => void;
  off: (event: string, listener: Listener) => void;
  send: (message: unknown, callbacks?: unknown, buffers?: Uint8Array[]) => void;
  widget_manager?: { kernel?: Kernel };
}
