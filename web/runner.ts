// One worker that runs the network; one question at a time, the newest before all others.

export interface Tensor {
  shape: number[];
  values: Float32Array;
}
export type Tensors = Record<string, Tensor>;

/** What the worker is asked: to start with a model, or to run the network. */
export type RunnerMessage =
  | { binary: Uint8Array<ArrayBuffer> }
  | { model: Uint8Array<ArrayBuffer>; forward: number; level: string }
  | { feeds: Tensors; outputs: string[]; graded: boolean };

/** What the worker answers; `took` is in milliseconds. */
interface RunResult {
  id: number;
  outputs: Tensors;
  took?: number;
  error?: string;
}

/** The worker, with promises instead of messages. */
export class Runner {
  worker: Worker;
  waiting: Map<number, { done: (found: RunResult) => void; failed: (error: Error) => void }> =
    new Map();
  count = 0;
  took = 0; // milliseconds of the latest run
  ready: Promise<void>;

  /**
   * @param binary The runtime, deflated.
   * @param model Deflated; the runtime begins before it is here.
   * @param facts So many bytes are a model without the gradients; and how the runtime optimizes one.
   */
  constructor(
    program: string,
    binary: Uint8Array<ArrayBuffer>,
    model: Promise<Uint8Array<ArrayBuffer>>,
    facts: { forward: number; level: string },
  ) {
    const url = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
    this.worker = new Worker(url);
    this.worker.onmessage = ({ data }) => this.arrived(data);
    this.worker.onerror = (event) => this.broken(event.message || "the worker could not start");
    this.worker.postMessage({ binary }, [binary.buffer]);
    this.ready = this.begin(model, facts).then(() => URL.revokeObjectURL(url));
    this.ready.catch(() => undefined); // who waits for it is told
  }

  async begin(
    model: Promise<Uint8Array<ArrayBuffer>>,
    { forward, level }: { forward: number; level: string },
  ) {
    const packed = await model;
    return this.send({ model: packed, forward, level }, [packed.buffer]);
  }

  /** @param given What is not copied. */
  send(message: RunnerMessage, given: Transferable[] = []): Promise<RunResult> {
    this.count += 1;
    const id = this.count;
    return new Promise((done, failed) => {
      this.waiting.set(id, { done, failed });
      this.worker.postMessage({ id, ...message }, given);
    });
  }

  arrived(data: RunResult) {
    const found = this.waiting.get(data.id);
    this.waiting.delete(data.id);
    if (data.error) return found?.failed(new Error(`The network failed: ${data.error}`));
    this.took = data.took ?? this.took;
    return found?.done(data);
  }

  broken(why: string) {
    for (const { failed } of this.waiting.values()) failed(new Error(`The network failed: ${why}`));
    this.waiting.clear();
  }

  async run(feeds: Tensors, outputs: string[]): Promise<Tensors> {
    await this.ready;
    const graded = outputs.some((name) => name.startsWith("gradient:"));
    const own = Object.entries(feeds).filter(([name]) => graded || !name.startsWith("weights:")); // as large as the output
    return (await this.send({ feeds: Object.fromEntries(own), outputs, graded })).outputs;
  }
}

/** What the network returns for one input, one set of factors and one class, as far as known. */
export class Answer {
  known: Map<string, Tensor> = new Map();
  wanted: Set<string> = new Set();
  /** What was made of it. */
  made: Map<string, unknown> = new Map();

  constructor(public feeds: Tensors) {
  }

  missing(names: string[]) {
    return names.filter((name) => !this.known.has(name));
  }

  /** What is known of these outputs; null if any is missing, which is then asked for. */
  get(names: string[]) {
    const missing = this.missing(names);
    for (const name of missing) this.wanted.add(name);
    return missing.length ? null : names.map((name) => this.known.get(name)!);
  }

  add(outputs: Tensors) {
    for (const [name, each] of Object.entries(outputs)) {
      this.known.set(name, each);
      this.wanted.delete(name);
    }
  }

  once<T>(name: string, make: () => T): T {
    if (!this.made.has(name)) this.made.set(name, make());
    return this.made.get(name) as T;
  }
}
