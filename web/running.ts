// Heatmaps and orders that run the network many times: as hookviz/attribution/perturbation.py, with
// what is done so far, and a stop.

import { el, setText, visible } from "./dom.ts";
import { descending } from "./measures.ts";
import { upsampled } from "./overlay.ts";
import type { Answer, Tensor } from "./runner.ts";
import type { CallFacts, NetworkSource } from "./network.ts";
import type { Part } from "./ablation.tsx";
import type { Heat } from "./source.ts";

/** One run for each number. */
interface Plan {
  count: number;
  feeds: (number: number) => Record<string, Tensor>;
  made: (scores: Float64Array, whole: number) => Heat;
}
/** `whole` is the score of the input as it is. */
interface Job {
  answer: Answer;
  key: string;
  plan: Plan;
  whole: number | null;
  scores: Float64Array;
  done: number;
  turn: number;
  stopped: string;
}
export interface Maps {
  maps: Float32Array;
  count: number;
  height: number;
  width: number;
}

const ABLATION_PART = 250; // milliseconds of a part of the order by ablation

/** Their names in the menu. */
export const RUNNING = ["scorecam", "occlusion"];

/** The work, one at a time: a new one takes the place of the one before. */
export class Running {
  job: Job | null = null;
  words = el("span", { class: "hv-dim", role: "status" });
  button = el("button", { class: "hv-toggle", type: "button" });
  root: HTMLDivElement;

  constructor(public source: NetworkSource) {
    this.root = el("div", { class: "hv-ablation", hidden: true }, this.words, this.button);
    this.button.addEventListener("click", () => this.pressed());
  }

  /** Whether runs go on. */
  get works() {
    return Boolean(this.job && !this.job.stopped);
  }

  /** Another heatmap is looked at. */
  leave() {
    this.job = null;
    this.show();
  }

  /** A heatmap; null while it is on its way. */
  heat(name: string, answer: Answer, facts: CallFacts, maps: Maps): Heat | null {
    const key = keyOf(name, facts, maps);
    const known = answer.made.get(key) as Heat | undefined;
    if (known) {
      this.leave();
      return known;
    }
    const { job } = this;
    if (job?.answer === answer && job.key === key) {
      return job.stopped ? { values: null, shape: [], none: job.stopped } : null;
    }
    this.job = jobOf(answer, key, planOf(name, answer, maps));
    this.begin(this.job);
    return null;
  }

  async begin(job: Job) {
    job.turn += 1;
    const { turn } = job;
    this.show();
    try {
      await this.work(job, () => this.job === job && job.turn === turn && !job.stopped);
    } catch (error) {
      job.stopped = (error as Error).message;
    }
    if (this.job === job && job.turn === turn) this.source.tell();
  }

  async work(job: Job, wanted: () => boolean) {
    job.whole ??= await this.score(job.answer.feeds);
    while (job.done < job.plan.count) {
      const score = await this.score(job.plan.feeds(job.done));
      if (!wanted()) return;
      job.scores[job.done] = score;
      job.done += 1;
      this.show();
    }
    job.answer.made.set(job.key, job.plan.made(job.scores, job.whole));
  }

  /** A heatmap for a script, whatever the page shows meanwhile. */
  async alone(name: string, answer: Answer, facts: CallFacts, maps: Maps): Promise<Heat> {
    const key = keyOf(name, facts, maps);
    if (!answer.made.has(key)) {
      await this.work(jobOf(answer, key, planOf(name, answer, maps)), () => true);
    }
    return answer.made.get(key) as Heat;
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

  pressed() {
    const { job } = this;
    if (!job) return;
    if (job.stopped) {
      job.stopped = "";
      this.begin(job); // goes on where it stood
    } else job.stopped = "stopped";
    this.show();
    this.source.tell();
  }

  show() {
    const { job } = this;
    visible(this.root, Boolean(job));
    if (!job) return;
    setText(this.words, `${job.done} of ${job.plan.count} runs`);
    setText(this.button, job.stopped ? "go on" : "stop");
  }

  /** What the score loses without each channel, in parts. */
  async ablate(
    answer: Answer,
    facts: CallFacts,
    told: (part: Part) => void,
    known: (drops: Float32Array, order: Uint32Array) => void,
  ) {
    const state: { whole: number | null; drops: number[] } = answer.once(
      `ablation ${facts.name}`,
      () => ({ whole: null, drops: [] }),
    );
    const end = performance.now() + ABLATION_PART;
    try {
      state.whole ??= await this.score(answer.feeds);
      while (state.drops.length < facts.channels && performance.now() < end) {
        const values = answer.feeds.scales.values.slice();
        values[facts.start + state.drops.length] = 0;
        const scales = { shape: [values.length], values };
        state.drops.push(state.whole - (await this.score({ ...answer.feeds, scales })));
      }
    } catch (error) {
      return told({ share: 0, order: null, none: (error as Error).message });
    }
    if (state.drops.length < facts.channels) {
      return told({ share: state.drops.length / facts.channels, order: null, none: "" });
    }
    const drops = Float32Array.from(state.drops);
    const order = Uint32Array.from(descending(drops));
    known(drops, order);
    return told({ share: 1, order, none: "" });
  }
}

const jobOf = (answer: Answer, key: string, plan: Plan): Job => ({
  answer,
  key,
  plan,
  whole: null,
  scores: new Float64Array(plan.count),
  done: 0,
  turn: 0,
  stopped: "",
});

const keyOf = (
  name: string,
  facts: CallFacts,
  maps: Maps,
) => (name === "occlusion" ? name : `${name} ${facts.name} ${maps.width}`);

const planOf = (
  name: string,
  answer: Answer,
  maps: Maps,
) => (name === "occlusion" ? occluding(answer) : masking(answer, maps));

/** Another input in place of the answer's own. */
function withInput(answer: Answer, change: (values: Float32Array) => void) {
  const { shape, values } = answer.feeds.input;
  const own = values.slice();
  change(own);
  return { ...answer.feeds, input: { shape, values: own } };
}

/** Score-CAM: each channel is a mask over the picture, and its score the channel's weight. */
function masking(answer: Answer, { maps, count, height, width }: Maps): Plan {
  const { shape } = answer.feeds.input;
  const [tall, wide] = [shape[2], shape[3]];
  const own = (channel: number) =>
    maps.subarray(channel * height * width, (channel + 1) * height * width);
  return {
    count,
    feeds: (channel) =>
      withInput(answer, (values) => {
        const map = own(channel);
        const mask = upsampled(map, height, width, tall, wide);
        const [low, high] = maskEnds(mask);
        const span = map.every((value) => value === map[0]) ? Infinity : high - low;
        for (let i = 0; i < values.length; i++) {
          values[i] *= (mask[i % mask.length] - low) / span;
        }
      }),
    made: (scores) => {
      const most = Math.max(...scores);
      const raised = scores.map((score) => Math.exp(score - most));
      const sum = raised.reduce((total, each) => total + each, 0);
      const sums = new Float64Array(height * width);
      for (let channel = 0; channel < count; channel++) {
        const map = own(channel);
        for (let i = 0; i < sums.length; i++) {
          sums[i] += (raised[channel] / sum) * map[i];
        }
      }
      return {
        values: Float32Array.from(sums, (value) => (value < 0 ? 0 : value)),
        shape: [height, width],
      };
    },
  };
}

function maskEnds(values: Float32Array): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/**
 * Occlusion: a window of zeros moves over the picture; a pixel has the mean of the drops of the
 * score of all windows over it.
 */
function occluding(answer: Answer): Plan {
  const { shape } = answer.feeds.input;
  const [height, width] = [shape[2], shape[3]];
  const side = Math.ceil(Math.min(height, width) / 8);
  const step = Math.ceil(side / 2);
  const begins = (size: number) =>
    Array.from({ length: Math.ceil(Math.max(size - side, 0) / step) + 1 }, (_, i) => i * step);
  const corners = begins(height).flatMap((top) => begins(width).map((left) => [top, left]));
  const within = (number: number, act: (place: number) => void) => {
    const [top, left] = corners[number] as [number, number];
    for (let row = top; row < Math.min(top + side, height); row++) {
      for (let column = left; column < Math.min(left + side, width); column++) {
        act(row * width + column);
      }
    }
  };
  return {
    count: corners.length,
    feeds: (number) =>
      withInput(answer, (values) => {
        within(number, (place) => {
          for (let i = place; i < values.length; i += height * width) values[i] = 0;
        });
      }),
    made: (scores, whole) => {
      const [total, over] = [new Float64Array(height * width), new Float64Array(height * width)];
      scores.forEach((score, number) => {
        within(number, (place) => {
          total[place] += whole - score;
          over[place] += 1;
        });
      });
      return {
        values: Float32Array.from(total, (sum, i) => sum / Math.max(over[i], 1)),
        shape: [height, width],
      };
    },
  };
}
