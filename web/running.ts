// Occlusion, and the order by the score that is lost: the network runs many times, as in
// hookviz/attribution/perturbation.py, with what is done so far, and a stop.

import { descending } from "./measures.ts";
import type { Answer, Tensor } from "./runner.ts";
import type { CallFacts, NetworkSource } from "./network.ts";
import type { Part } from "./ablation.tsx";
import type { Numbers } from "./layer.ts";
import type { Heat } from "./source.ts";

/** The pixels below a window of zeros, which moves over the picture. */
type Window = number[];
interface Job {
  answer: Answer;
  windows: Window[];
  /** The score of the input as it is. */
  whole: number | null;
  /** What it loses below each window, as far as known. */
  drops: number[];
  turn: number;
  stopped: string;
}

/** What the score loses without each channel of a layer, and the channels by it. */
export interface Scores {
  drops: Numbers;
  order: Numbers;
}

const ABLATION_PART = 250; // milliseconds of a part of the order by ablation

/** Its name in the menu. */
export const OCCLUSION = "occlusion";

/** The work, one at a time: a new one takes the place of the one before. */
export class Running {
  job: Job | null = null;

  constructor(public source: NetworkSource) {}

  /** Whether runs go on. */
  get works() {
    return Boolean(this.job && !this.job.stopped);
  }

  /** Another heatmap is looked at. */
  leave() {
    this.job = null;
  }

  /** The heatmap; null while it is on its way. */
  heat(answer: Answer): Heat | null {
    const known = answer.made.get(OCCLUSION) as Heat | undefined;
    if (known) {
      this.leave();
      return known;
    }
    const { job } = this;
    if (job?.answer === answer) {
      return job.stopped ? { values: null, shape: [], none: job.stopped } : null;
    }
    this.job = jobOf(answer);
    this.begin(this.job);
    return null;
  }

  async begin(job: Job) {
    job.turn += 1;
    const { turn } = job;
    try {
      await this.work(job, () => this.job === job && job.turn === turn && !job.stopped);
    } catch (error) {
      job.stopped = (error as Error).message;
    }
    if (this.job === job && job.turn === turn) this.source.tell();
  }

  async work(job: Job, wanted: () => boolean) {
    const { answer: { feeds, made }, windows, drops } = job;
    const { shape, values } = feeds.input;
    const [height, width] = shape.slice(2);
    job.whole ??= await this.score(feeds);
    while (drops.length < windows.length) {
      const occluded = values.slice();
      for (const place of windows[drops.length]) {
        for (let i = place; i < values.length; i += height * width) occluded[i] = 0;
      }
      const score = await this.score({ ...feeds, input: { shape, values: occluded } });
      if (!wanted()) return;
      drops.push(job.whole - score);
      this.source.tell();
    }
    // A pixel has the mean of the drops of all windows over it.
    const [total, over] = [new Float64Array(height * width), new Float64Array(height * width)];
    windows.forEach((window, number) => {
      for (const place of window) {
        total[place] += drops[number];
        over[place] += 1;
      }
    });
    const means = Float32Array.from(total, (sum, i) => sum / Math.max(over[i], 1));
    made.set(OCCLUSION, { values: means, shape: [height, width] });
  }

  /** The heatmap for a script, whatever the page shows meanwhile. */
  async alone(answer: Answer): Promise<Heat> {
    if (!answer.made.has(OCCLUSION)) await this.work(jobOf(answer), () => true);
    return answer.made.get(OCCLUSION) as Heat;
  }

  /** The target's score. */
  async score(feeds: Record<string, Tensor>) {
    const { logits } = await this.source.runner.run(feeds, ["logits"]);
    const weights = feeds.classes?.values;
    const own = this.source.targetClass ?? 0;
    const values = logits.values;
    return weights
      ? weights.reduce((sum, weight, i) => (weight ? sum + weight * values[i] : sum), 0)
      : values[own];
  }

  toggle(job: Job) {
    if (job.stopped) {
      job.stopped = "";
      this.begin(job); // goes on where it stood
    } else job.stopped = "stopped";
    this.source.tell();
  }

  /** What the score loses without each channel: some of them at a time. */
  async ablate(answer: Answer, { name, start, channels }: CallFacts): Promise<Part> {
    const { feeds, made } = answer;
    const state: { whole: number | null; drops: number[] } = answer.once(
      `some drops ${name}`,
      () => ({ whole: null, drops: [] }),
    );
    const { drops } = state;
    const end = performance.now() + ABLATION_PART;
    try {
      const whole = state.whole ??= await this.score(feeds);
      while (drops.length < channels && performance.now() < end) {
        const values = feeds.scales.values.slice();
        values[start + drops.length] = 0;
        const scales = { shape: [values.length], values };
        drops.push(whole - (await this.score({ ...feeds, scales })));
      }
    } catch (error) {
      return { order: null, none: (error as Error).message };
    }
    if (drops.length < channels) return { share: drops.length / channels, order: null };
    const values = Float32Array.from(drops);
    const order = descending(values);
    const shape = [channels];
    const scores: Scores = { drops: { shape, values }, order: { shape, values: order } };
    made.set(`score drops ${name}`, scores);
    return { share: 1, order };
  }
}

function jobOf(answer: Answer): Job {
  const [height, width] = answer.feeds.input.shape.slice(2);
  const side = Math.ceil(Math.min(height, width) / 8);
  const step = Math.ceil(side / 2);
  const begins = (size: number) =>
    Array.from({ length: Math.ceil(Math.max(size - side, 0) / step) + 1 }, (_, i) => i * step);
  const within = (first: number, size: number) =>
    Array.from({ length: Math.min(side, size - first) }, (_, i) => first + i);
  const windows = begins(height).flatMap((top) =>
    begins(width).map((left) =>
      within(top, height).flatMap((row) =>
        within(left, width).map((column) => row * width + column)
      )
    )
  );
  return { answer, windows, whole: null, drops: [], turn: 0, stopped: "" };
}
