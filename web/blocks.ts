// The data in a page: blocks of arrays, packed, each in an element of its own.

import { decoded } from "./arrays.ts";
import { fromBase64 } from "./levels.ts";
import type { Numbers } from "./layer.ts";

export interface Block<Header> {
  header: Header;
  arrays: Record<string, Numbers>;
}

/** The arrays of a block: a header that says how each is packed, and all bytes, deflated. */
export async function block<Header>(id: string): Promise<Block<Header> | null> {
  const script = document.getElementById(id);
  if (!script) return null;
  const { header, data } = JSON.parse(script.textContent ?? "");
  const bytes = await inflated(fromBase64(data), header.streams);
  const arrays: Record<string, Numbers> = {};
  let from = 0;
  for (const coding of header.arrays) {
    const part = bytes.subarray(from, from + coding.bytes);
    from += coding.bytes;
    arrays[coding.name] = decoded(coding, part, arrays[`${coding.name} ends`]?.values);
  }
  return { header, arrays };
}

/** @param lengths Of the streams in it. */
export async function inflated(packed: Uint8Array<ArrayBuffer>, lengths: number[]) {
  let from = 0;
  const streams = lengths.map((length) => packed.subarray(from, from += length));
  const unpacked = streams.map(async (stream) => {
    const through = new Blob([stream]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(through).arrayBuffer();
  });
  return new Uint8Array(await new Blob(await Promise.all(unpacked)).arrayBuffer());
}

/**
 * One deflated file, which may stand behind the program; its element is emptied, since it is large.
 */
export async function fileIn(id: string) {
  if (!document.getElementById(id)?.nextSibling && document.readyState === "loading") {
    await new Promise((done) => document.addEventListener("DOMContentLoaded", done));
  }
  const script = document.getElementById(id);
  if (!script) throw new Error("the page was cut short: save or send it as a whole.");
  const text = script.textContent ?? "";
  script.textContent = "";
  return fromBase64(text);
}

/** In a frame of a notebook, say how high the page is. */
export function tellSize() {
  if (globalThis.parent === globalThis.self) return;
  document.body.classList.add("hookviz-framed"); // a share of its height would chase itself
  const tell = () =>
    globalThis.parent.postMessage({ hookvizHeight: document.documentElement.scrollHeight }, "*");
  new ResizeObserver(tell).observe(document.body);
}
