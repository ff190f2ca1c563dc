// The explorer's source of data: a kernel, a saved page, or a network that runs in the page.

import type { Part as Scores } from "./ablation.tsx";
import type { Step } from "./resize.ts";
import type { Course } from "./answers.ts";
import type { Field } from "./field.ts";
import type { Part as Flips } from "./flip.tsx";
import type { Layer, Numbers, Numeric } from "./layer.ts";
import type {
  AnyQuestion,
  AnyRequest,
  AsFed,
  Facts as KernelFacts,
  FeatureAnswer,
  LayerFacts,
  MapAnswer,
  Overview,
  PictureHeader,
  Reply,
  Settings,
  TargetFacts,
  WeightsAnswer,
  WhyAnswer,
  WithoutAnswer,
} from "./messages.d.ts";
import type { CallFacts, Input } from "./network.ts";
import type { Found } from "./output.tsx";
import type { Found as Sides } from "./pair.tsx";
import type { Running } from "./running.ts";
import type { Place, Values } from "./state.ts";

/** An answer with its arrays decoded. */
type Decoded<Answer extends Reply> =
  & Omit<Answer, "arrays" | "none" | "lost">
  & { arrays: Record<string, Numbers>; none?: undefined };

/** Why there is no answer. */
export interface Refused {
  none: string;
  stopped?: boolean | null;
}

/** What the kernel writes for once: a text or a file. */
export interface Written {
  none?: string | null;
  code?: string;
  arrays: Record<string, Numbers>;
}

/** The answers to the questions of the drawers "why?" and "weights". */
export interface Reasons {
  why: Decoded<WhyAnswer>;
  weights: Decoded<WeightsAnswer>;
  feature: Decoded<FeatureAnswer>;
  without: Decoded<WithoutAnswer>;
  prepare: Decoded<Reply>;
}
export type Reason<Word extends keyof Reasons> = Reasons[Word] | Refused;
export type ReasonQuestion = Extract<AnyQuestion, { ask: keyof Reasons }>;

/** The network's graph, and a picture of each layer. */
export type NetworkGraph =
  & Pick<MapAnswer, "nodes" | "edges" | "modules" | "sizes" | "batch">
  & {
    arrays: { pictures: { values: Uint8Array } };
    none?: undefined;
  };

/** What is looked at; what is left out is a layer's first. */
export type At = Partial<Values> & {
  layer: string;
  /** For the heatmaps of all layers, or for a script: what the page computes goes on. */
  ofAll?: boolean;
  script?: boolean;
  /** One of two runs, or their difference, in place of the shown one. */
  run?: string;
};
export type HeatAt = At & Pick<Values, "heatmap">;

export interface Picture extends Partial<Omit<PictureHeader, "height" | "width" | "fed">> {
  pixels: Uint8ClampedArray<ArrayBuffer>;
  height: number;
  width: number;
  fed?: AsFed | null;
}

/** A heatmap, or why there is none. */
export type Heat = SomeHeat | { values: null; shape: number[]; none?: string };
export interface SomeHeat {
  values: Numeric;
  shape: number[];
  none?: string;
}

/** Facts about the network that runs in a page. */
export interface NetFacts {
  /** The shapes of the inputs by name. */
  inputs: Record<string, number[]>;
  outputs: string[];
  answers: string[];
  forward: number;
  level: string;
  layers: CallFacts[];
  classes: number[] | null;
  number: number | null;
  target: TargetFacts;
  follows: boolean;
  /** The blocks of the inputs in the page. */
  pictures: string[];
  transform: { steps: Step[]; mean: number[]; std: number[] } | null;
  reason: string;
  notes: string[];
}

export type Facts = KernelFacts & Omit<Overview, "layers"> & {
  layers: Array<LayerFacts & { map?: number[] }>;
  note?: string;
  notes?: string[];
  /** Whether the page holds an answer to "why this output?". */
  why?: { output: number | null };
  lesson?: Course | null;
};

/** The exact numbers at a position. */
export interface ExactValue {
  maps: number | null;
  gradients: number | null;
}

/**
 * Where facts and numbers come from. Data that has not arrived is null; `listeners` are called when
 * it arrives.
 */
export interface Source {
  facts: Facts;
  live: boolean;
  listeners: Set<(now?: boolean) => void>;
  layer: (at: At) => Layer | null;
  heat: (at: HeatAt) => Heat | null;
  picture: (place: [number, number, number] | null, run?: string) => Picture | null;
  field: (at: At) => Field | null;
  target: (number: number) => void;
  edit: (what: AnyRequest) => void;
  ablate: (at: At, told: (part: Scores | null) => void) => void;
  value: (at: At, row: number, column: number) => ExactValue | null;
  prefetch: (at: At, layers: string[]) => void;
  gone?: string;
  refused?: number;
  waiting?: string;
  asking?: string | null;
  sides?: (at: HeatAt) => Sides | null;
  write?: (written: string) => void;
  /** What the gradients are of, where that is not the target. */
  gradientsOf?: string;
  /** Back to an earlier target. */
  retarget?: (target: TargetFacts) => void;
  /** What the network gets, and back to an earlier one. */
  input?: Input;
  restore?: (input: Input) => void;
  /** Whether a request is on its way; and how many were made. */
  busy?: boolean;
  requested?: number;
  answer?: (which: number, channel: number | null, sample: number) => Found | null;
  flip?: (at: At, channels: number[], told: (part: Flips | null) => void) => void;
  why?: <Asked extends ReasonQuestion>(question: Asked) => Reason<Asked["ask"]> | null;
  map?: (at: At) => NetworkGraph | Refused | null;
  /** Repeat the requests that were stopped. */
  retry?: () => void;
  /** The drawer that was open when the view was drawn last. */
  opened?: string;
  holds?: (what: "answers" | "weights") => boolean;
  switches?: boolean;
  reaches?: (layer: string) => boolean;
  restart?: () => void;
  /** The view as a file with this ending, or as code. */
  file?: (ending: string, settings: Settings & Record<string, unknown>) => Promise<Written>;
  code?: (settings: Settings & Record<string, unknown>) => Promise<Written>;
  /** The heatmap that takes many runs. */
  running?: Running;
  /** Whether the address follows the view. */
  link?: boolean;
  scores?: (
    at: At,
    place: Place,
    reference: number,
  ) => ArrayLike<number> | null;
}
