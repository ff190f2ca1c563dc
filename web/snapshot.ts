// The shown view as one picture: maps at their own pixels, words, outlines; no controls.

import { middle } from "./numbers.ts";

const SCALE = 2; // pixels of the picture for one of the page
const AROUND = 12;
const CONTROLS = "select, option, .hv-toggle, .hv-turns, .hv-hints, .hv-opacity, " +
  ".hv-below .hv-opener, .hv-over-list > :last-child";

/** @param parts What is drawn, each where it stands. */
export function snapshot(root: HTMLElement, parts: HTMLElement[]): HTMLCanvasElement {
  const shown = closer(parts.filter((part) => part.checkVisibility()));
  const boxes = shown.map(({ box }) => box);
  const cut = Math.max(...shown.map(({ up }) => up));
  const whole = {
    left: Math.min(...boxes.map((box) => box.left)) - AROUND,
    top: Math.min(...boxes.map((box) => box.top)) - AROUND,
    right: Math.max(...boxes.map((box) => box.right)) + AROUND,
    bottom: Math.max(...boxes.map((box) => box.bottom)) + AROUND,
  };
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(SCALE * (whole.right - whole.left));
  canvas.height = Math.round(SCALE * (whole.bottom - whole.top - cut));
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser gives no more canvases.");
  context.scale(SCALE, SCALE);
  context.translate(-whole.left, -whole.top);
  context.fillStyle = getComputedStyle(root).getPropertyValue("--hv-bg") || "#fff";
  context.fillRect(whole.left, whole.top, whole.right - whole.left, whole.bottom - whole.top);
  for (const { part, up } of shown) {
    context.save();
    context.translate(0, -up);
    const walker = document.createTreeWalker(part, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) drawNode(context, walker.currentNode);
    context.restore();
  }
  return canvas;
}

/** From top to bottom; and how far each moves up, as the controls between them are left out. */
function closer(parts: HTMLElement[]) {
  const from = parts.map((part) => ({ part, box: part.getBoundingClientRect(), up: 0 })).sort((
    one,
    other,
  ) => one.box.top - other.box.top);
  let [end, up] = [from[0]?.box.top ?? 0, 0];
  for (const each of from) {
    up += Math.max(each.box.top - end - AROUND, 0);
    each.up = up;
    end = Math.max(end, each.box.bottom);
  }
  return from;
}

function drawNode(context: CanvasRenderingContext2D, node: Node) {
  const element = node instanceof HTMLElement ? node : node.parentElement;
  if (!element?.checkVisibility({ visibilityProperty: true })) return;
  if (element.closest(".hv-card-here")) return; // it would cover a part of a map
  if (node instanceof HTMLCanvasElement) clipped(context, node, () => drawPixels(context, node));
  else if (node instanceof HTMLSelectElement) {
    drawLine(context, node, node.selectedOptions[0]?.textContent ?? "", inner(node, 4));
  } else if (node instanceof HTMLInputElement) {
    if (node.classList.contains("hv-end")) drawLine(context, node, node.value, inner(node, 1));
  } else if (node instanceof HTMLElement) drawBox(context, node);
  else if (!element.closest(CONTROLS)) {
    clipped(context, element, () => drawText(context, node, element));
  }
}

/** Draw, but not beyond what the page itself cuts off. */
function clipped(context: CanvasRenderingContext2D, element: HTMLElement, draw: () => void) {
  context.save();
  for (
    let each = element.parentElement;
    each && !each.classList.contains("hookviz-app");
    each = each.parentElement
  ) {
    if (getComputedStyle(each).overflow === "visible") continue;
    const box = each.getBoundingClientRect();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
  }
  draw();
  context.restore();
}

function drawPixels(context: CanvasRenderingContext2D, canvas: HTMLCanvasElement) {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  if (!canvas.width || !canvas.height || !width || !height) return;
  context.imageSmoothingEnabled = getComputedStyle(canvas).imageRendering !== "pixelated";
  context.drawImage(canvas, left, top, width, height);
}

/** Its ground and its border. */
function drawBox(context: CanvasRenderingContext2D, element: HTMLElement) {
  const style = getComputedStyle(element);
  const { left, top, width, height } = element.getBoundingClientRect();
  const outlined = element.matches(".hv-tile, .hv-layer i") && style.outlineStyle === "solid";
  if (element.classList.contains("hv-silent")) drawCross(context, element);
  const line = Number.parseFloat(outlined ? style.outlineWidth : style.borderTopWidth);
  clipped(context, element, () => {
    if (style.backgroundColor !== "rgba(0, 0, 0, 0)" && !element.classList.contains("hv-toggle")) {
      context.fillStyle = style.backgroundColor;
      context.fillRect(left, top, width, height);
    }
    if (
      !line || element.matches("button, .hv-frame") ||
      style.borderTopWidth !== style.borderBottomWidth
    ) return;
    context.lineWidth = line;
    context.strokeStyle = outlined ? style.outlineColor : style.borderTopColor;
    const half = outlined ? -line / 2 : line / 2;
    context.strokeRect(left + half, top + half, width - 2 * half, height - 2 * half);
  });
}

/** A silent channel's, from corner to corner. */
function drawCross(context: CanvasRenderingContext2D, element: HTMLElement) {
  const { left, top, right, bottom } = element.getBoundingClientRect();
  clipped(context, element, () => {
    context.lineWidth = 1.5;
    context.strokeStyle = getComputedStyle(element).getPropertyValue("--hv-dim");
    context.beginPath();
    context.moveTo(left, top);
    context.lineTo(right, bottom);
    context.moveTo(left, bottom);
    context.lineTo(right, top);
    context.stroke();
  });
}

function inner(element: HTMLElement, padding: number) {
  const { left, top, width, height } = element.getBoundingClientRect();
  return new DOMRect(left + padding, top, width - 2 * padding, height);
}

/** A text as the page has broken it into lines. */
function drawText(context: CanvasRenderingContext2D, node: Node, element: HTMLElement) {
  let text = node.textContent ?? "";
  if (!text.trim()) return;
  if (getComputedStyle(element, "::first-letter").textTransform === "uppercase") {
    text = text.charAt(0).toUpperCase() + text.slice(1);
  }
  const range = document.createRange();
  if (
    getComputedStyle(element).textOverflow === "ellipsis" &&
    element.scrollWidth > element.clientWidth
  ) {
    const most = Math.floor((text.length * element.clientWidth) / element.scrollWidth) - 1;
    range.selectNodeContents(element);
    drawLine(context, element, middle(text, Math.max(most, 1)), range.getBoundingClientRect());
    return;
  }
  let from = 0;
  let box = new DOMRect();
  const line = (to: number) => drawLine(context, element, text.slice(from, to), box);
  for (let place = 0; place < text.length; place++) {
    range.setStart(node, place);
    range.setEnd(node, place + 1);
    const own = range.getBoundingClientRect();
    if (place && own.top > box.top + box.height / 2 && own.width) {
      line(place);
      from = place;
      box = own;
    } else {box = place === from
        ? own
        : new DOMRect(box.left, box.top, own.right - box.left, box.height || own.height);}
  }
  line(text.length);
}

/** @param element Whose type it has. */
function drawLine(
  context: CanvasRenderingContext2D,
  element: HTMLElement,
  text: string,
  box: DOMRect,
) {
  const style = getComputedStyle(element);
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = style.color;
  context.textBaseline = "middle";
  const right = style.textAlign === "right" && element instanceof HTMLInputElement;
  context.textAlign = right ? "right" : "left";
  const words = text.trim();
  const share = box.width / context.measureText(words).width;
  const shown = share < 0.95 ? middle(words, Math.floor(share * words.length) - 1) : words;
  context.fillText(shown, right ? box.right : box.left, box.top + box.height / 2 + 0.5);
}
