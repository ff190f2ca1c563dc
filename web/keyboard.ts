// Arrow keys walk, and go on walking while they are held: faster with time, at most a step a frame.
// The system's first repeat says that a key is held: the event of its end may come late.

export type Step = (by: number) => void;

const FIRST = 12; // steps a second at first
const RAMP = 900; // milliseconds until there is a step in each frame

/** The one key that is held. */
class Held {
  key = "";
  frame = 0;

  constructor(signal?: AbortSignal) {
    for (const over of ["keyup", "blur"]) {
      globalThis.addEventListener(over, () => this.end(), { signal });
    }
  }

  begin(key: string, step: () => void) {
    this.end();
    this.key = key;
    step();
    const start = performance.now();
    let due = start + 1000 / FIRST;
    const next = (now: number) => {
      if (this.key !== key) return;
      if (now >= due) {
        step();
        const share = Math.min((now - start) / RAMP, 1);
        due = share >= 1 ? now : now + (1000 / FIRST) * (1 - share) ** 2;
      }
      this.frame = requestAnimationFrame(next);
    };
    this.frame = requestAnimationFrame(next);
  }

  end() {
    cancelAnimationFrame(this.frame);
    this.key = "";
  }
}

/**
 * Let keys walk.
 * @param steps Key -> what it does; those of arrows are repeated.
 * @param meant What a key means where the focus is: "" leaves it to the page.
 * @param signal Ends it.
 */
export function listenToKeys(
  where: EventTarget,
  steps: Record<string, () => void>,
  meant: (target: HTMLElement, key: string) => string,
  signal?: AbortSignal,
) {
  const held = new Held(signal);
  where.addEventListener("keydown", (given) => {
    const event = given as KeyboardEvent;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = (event.composedPath()[0] ?? event.target) as HTMLElement;
    const pressed = event.shiftKey ? `Shift${event.key}` : event.key;
    const key = meant(target, pressed);
    if (!key || !steps[key]) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.repeat && /Arrow|Page/.test(key)) {
      if (held.key !== key) held.begin(key, steps[key]); // the system's own repeats are too slow
    } else {
      held.end();
      steps[key]();
    }
  }, { signal });
}
