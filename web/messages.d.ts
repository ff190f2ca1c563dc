// Generated from hookviz/view/messages.py and settings.py by `make messages`.

export interface Settings {
  layer: string;
  call: number;
  sample: number;
  depth: number;
  channel: number;
  order: string;
  reference_channel: number;
  cmap: string;
  normalize: string;
  heatmap: string;
  alpha: number;
  over_input: boolean;
  all_layers: boolean;
  shown_after: string;
  place: [number, number] | null;
  shown_run: string;
}

export interface HealthSummary {
  text: string;
  kind: string;
  layer: string | null;
  details: string;
}

export interface OutputBox {
  corners: [number, number, number, number];
  label: string;
  score: number;
  target: string;
  points: [number, number][];
  point_targets: string[];
}

export interface Prediction {
  number: number;
  name: string;
  value: number | null;
  words: string;
  before: number | null;
  change: string;
}

export interface TransformWords {
  short: string;
  full: string;
  doubt: string;
}

export interface Opening {
  layer: string;
  channel: number;
  sample: number;
  words: string;
}

export interface Question {
  key: string;
  stops?: number | null;
}

export interface LayerPart extends Question {
  layer?: string | null;
  call?: number | null;
  sample?: number | null;
  depth?: number | null;
  place?: [number, number] | null;
  shown_after?: string | null;
  shown_run?: string | null;
}

export interface HereQuestion extends Question {
  ask: "here";
}

export interface CodeQuestion extends Question {
  ask: "code";
  settings: Record<string, unknown>;
}

export interface FileQuestion extends Question {
  ask: "file";
  settings: Record<string, unknown>;
  ending: string;
}

export interface PrepareQuestion extends Question {
  ask: "prepare";
}

export interface LayerQuestion extends LayerPart {
  ask: "layer";
}

export interface PictureQuestion extends Question {
  ask: "picture";
  of?: [number, number, number] | null;
  shown_run?: string | null;
}

export interface HeatmapQuestion extends LayerPart {
  ask: "heatmap";
  method: string;
}

export interface HeatmapsQuestion extends LayerPart {
  ask: "heatmaps";
  method: string;
}

export interface SidesQuestion extends LayerPart {
  ask: "sides";
  method: string;
}

export interface OutputQuestion extends Question {
  ask: "output";
  which: number;
  channel?: number | null;
  sample?: number;
}

export interface FieldQuestion extends LayerPart {
  ask: "field";
}

export interface ValueQuestion extends LayerPart {
  ask: "value";
  channel: number;
  row: number;
  column: number;
}

export interface ScoresQuestion extends LayerPart {
  ask: "scores";
  order: string;
  reference_channel?: number;
}

export interface AblationQuestion extends LayerPart {
  ask: "ablation";
}

export interface FlipQuestion extends LayerPart {
  ask: "flip";
  channels: number[];
}

export interface MapQuestion extends LayerPart {
  ask: "map";
}

export interface WhyQuestion extends Question {
  ask: "why";
  layer?: string | null;
  call?: number | null;
  channel?: number | null;
  sample?: number | null;
  depth?: number | null;
  position?: number[] | null;
  place?: [number, number] | null;
  output?: number | null;
  written?: string | null;
  traced?: number | null;
}

export interface WeightsQuestion extends Question {
  ask: "weights";
  layer: string;
  call: number;
  channel: number;
  sample: number;
  depth?: number | null;
  place?: [number, number] | null;
}

export interface FeatureQuestion extends Question {
  ask: "feature";
  layer: string;
  channel: number;
}

export interface WithoutQuestion extends Question {
  ask: "without";
  layer: string;
  call: number;
  channel: number;
  position: number[];
  sample: number;
  channels: number[];
  target?: number | null;
}

export interface Coding {
  name: string;
  kind: string;
  shape: number[];
  bytes: number;
  scale?: number | null;
  delta?: boolean | null;
  planes?: boolean | null;
  step?: number | null;
}

export interface Reply {
  ask: string;
  key: string;
  none?: string | null;
  stopped?: boolean | null;
  lost?: boolean | null;
  arrays: Coding[];
}

export interface CodeAnswer extends Reply {
  ask: "code";
  code: string;
}

export interface Counts {
  channel: number;
  call: number;
  sample: number;
  depth: number;
}

export interface LayerHeader {
  layer: string;
  call: number;
  sample: number;
  depth: number;
  counts: Counts;
  place: [number, number, number] | null;
  no_picture: string;
  parts: boolean;
  size: number[];
  signed: boolean;
  dtype: string;
  magnitudes: string;
  extent: string;
  which: string;
  shown_after: string;
  word?: string | null;
  query?: string | null;
  beside?: string[] | null;
}

export interface LayerAnswer extends Reply {
  ask: "layer";
  header: LayerHeader;
}

export interface AsFed {
  gain: number[];
  shift: number[];
  words: string;
}

export interface PictureHeader {
  height?: number | null;
  width?: number | null;
  size?: number[] | null;
  fed?: AsFed | null;
  words: string;
}

export interface PictureAnswer extends Reply {
  ask: "picture";
  header: PictureHeader;
}

export interface SidesAnswer extends Reply {
  ask: "sides";
  method: string;
}

export interface ValueAnswer extends Reply {
  ask: "value";
  maps: string;
  gradients?: string | null;
}

export interface FieldEnds {
  along: number | null;
  from: number[];
  to: number[];
}

export interface FieldAnswer extends Reply {
  ask: "field";
  status: string;
  why: string;
  input?: number[] | null;
  map?: number[] | null;
  axes?: string[] | null;
  size?: number[] | null;
  ends?: FieldEnds[] | null;
}

export interface AblationAnswer extends Reply {
  ask: "ablation";
  share: number;
}

export interface FlipAnswer extends Reply {
  ask: "flip";
  share: number;
  curve: (number | null)[];
  answer: string;
  flipped: string | null;
  channels: number[];
}

export interface GraphNode {
  name: string;
  layer: string;
  call: number;
  operation: string;
  shape: number[] | null;
  failed: boolean;
  path: string;
  after: string[];
  sources: number[] | null;
}

export interface MapAnswer extends Reply {
  ask: "map";
  nodes: GraphNode[];
  edges: [number, number][];
  modules: Record<string, string>;
  sizes: Record<string, number[]>;
  batch: number;
}

export interface WhyOrigin {
  layer: string;
  call: number;
  channel: number;
  sample: number;
  position: number[];
  path: string[];
  part: string;
  cut_off: boolean;
}

export interface WhyTerm {
  channel: number;
  contribution: string;
  window: number[][];
  origins: WhyOrigin[];
  others: number;
  traced: boolean;
  rest?: string | null;
  remainder?: string | null;
  kind?: string | null;
  bent_by?: string[] | null;
}

export interface WhyAnswer extends Reply {
  ask: "why";
  layer: string;
  call: number;
  channel: number;
  position: number[];
  sample: number;
  value: string;
  bias: string;
  remainder: string;
  rest: string;
  others: number;
  constant: string;
  constants: number;
  size: number[];
  terms: WhyTerm[];
  after: string[][];
  mixed: string;
  sources: unknown[][];
  note: string;
  edited: string | null;
  edits: string[];
}

export interface WeightBins {
  low: string;
  high: string;
  all: number[];
  own: number[];
}

export interface WeightsAnswer extends Reply {
  ask: "weights";
  layer: string;
  channel: number;
  words: string;
  kind: string;
  by: string;
  channels: number[];
  numbers: string[];
  total: number;
  size: number[];
  facts: string[][];
  bins: WeightBins;
}

export interface FeatureAnswer extends Reply {
  ask: "feature";
  words: string;
  urls: string[];
  captions: string[];
}

export interface WithoutAnswer extends Reply {
  ask: "without";
  predicted: string;
  true: string;
  score?: string | null;
}

export interface Request {
  moved?: number;
  settings?: Record<string, unknown> | null;
  questions?: SentQuestion[];
}

export interface TargetRequest extends Request {
  set: "target";
  number?: number | null;
  written?: string | null;
}

export interface FactorRequest extends Request {
  set: "factor";
  layer: string;
  channel: number;
  factor: number;
}

export interface OffRequest extends Request {
  set: "off";
  layer: string;
  channels: number[];
}

export interface DropRequest extends Request {
  set: "drop";
  key: number;
}

export interface EditsRequest extends Request {
  set: "edits";
  keys: number[];
}

export interface PaintRequest extends Request {
  set: "paint";
  shape: [number, number];
}

export interface EraseRequest extends Request {
  set: "erase";
  shape: [number, number];
}

export interface PictureRequest extends Request {
  set: "picture";
  name: string;
  part: number;
  parts: number;
  again?: boolean;
}

export interface AgainRequest extends Request {
  set: "again";
  key: number;
  sample: number;
}

export interface BesideRequest extends Request {
  set: "beside";
  key: number;
  sample: number;
}

export interface TargetFacts {
  name: string;
  number: number | null;
  written: string | null;
  chosen: boolean;
}

export interface OutputMap {
  name: string;
  flat: boolean;
  labels: string[];
  picture: boolean;
  size: [number, number];
}

export interface OutputFacts {
  sample: number;
  first: [number, number | null];
  maps: OutputMap[];
  boxes: OutputBox[];
}

export interface ClassFacts {
  count: number;
  names: string[];
  word: string;
}

export interface LayerFacts {
  name: string;
  block: string;
  side: number;
  activation: number | null;
  gradient: number | null;
  zeros: number | null;
  nans: number;
  infs: number;
  channels: number;
  silent: number | null;
  kind: string;
  text: string;
  size: string;
  attends?: boolean | null;
  parts?: boolean | null;
}

export interface EditFacts {
  words: string;
  layer: string;
  channels: number[];
  factor: number | null;
  key: number;
}

export interface Choices {
  order: string[];
  cmap: string[];
  normalize: string[];
  heatmap: string[];
  shown_after: string[];
  shown_run: string[];
}

export interface Overview {
  layers: LayerFacts[];
  summary: string[];
  verdict: HealthSummary;
  classes: ClassFacts;
}

export interface Facts {
  model: string;
  target: TargetFacts;
  sides: [string, string] | null;
  answer: OutputFacts | null;
  predictions: Prediction[];
  scored: boolean;
  palettes: Record<string, string>;
  choices: Choices;
  run_names: string[];
  pair: boolean;
  methods: string[];
  method_names: Record<string, string>;
  order_names: Record<string, string>;
  flat: string[];
  opened: Opening | null;
  product: string;
  auto: [string, string, string, string];
  transform: TransformWords | null;
  edits: EditFacts[];
  run: number;
  blind: boolean;
}

export interface Thumbnail {
  key: number;
  sample: number;
  name: string;
  now: boolean;
  url: string;
}

export interface Moved {
  count: number;
  names: string[];
}

type Without<Kind, Names extends PropertyKey> = Kind extends unknown ? Omit<Kind, Names> : never;

/** A question with its key. */
export type SentQuestion = LayerQuestion | HeatmapQuestion | HeatmapsQuestion | SidesQuestion | FieldQuestion | ValueQuestion | ScoresQuestion | AblationQuestion | FlipQuestion | MapQuestion | HereQuestion | CodeQuestion | FileQuestion | PrepareQuestion | PictureQuestion | OutputQuestion | WhyQuestion | WeightsQuestion | FeatureQuestion | WithoutQuestion;

/** A question as it is asked; its key is added when it is sent. */
export type AnyQuestion = Without<SentQuestion, "key">;

/** A complete request. */
export type SentRequest = TargetRequest | FactorRequest | OffRequest | DropRequest | EditsRequest | PaintRequest | EraseRequest | PictureRequest | AgainRequest | BesideRequest;

/** A request before sending: with its bytes, without settings, count and questions. */
export type AnyRequest =
  & Without<SentRequest, "settings" | "moved" | "questions">
  & { bytes?: Uint8Array };

/** A reply; some hold arrays alone. */
export type AnyReply = CodeAnswer | LayerAnswer | PictureAnswer | SidesAnswer | ValueAnswer | FieldAnswer | AblationAnswer | FlipAnswer | MapAnswer | WhyAnswer | WeightsAnswer | FeatureAnswer | WithoutAnswer | (Reply & { ask: "heatmap" | "heatmaps" | "scores" | "here" | "file" | "prepare" | "output" });
