// One worker that runs the network; one question at a time, the newest before all others.

/**
 * @typedef {{shape: number[], values: Float32Array}} Tensor
 * @typedef {Record<string, Tensor>} Tensors
 */

/** The worker, with promises instead of messages. */
export class Runner {
  /**
   * @param {string} program
   * @param {Uint8Array<ArrayBuffer>} binary The runtime, deflated.
   * @param {Promise<Uint8Array<ArrayBuffer>>} model Deflated; the runtime begins before it is here.
   * @param {{forward: number, level: string}} facts So many bytes are a model without the gradients;
   *   and how the runtime optimizes one.
   */
  constructor(program, binary, model, facts) {
    const url = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
    this.worker = new Worker(url);
    /** @type {Map<number, {done: (found: any) => void, failed: (error: Error) => void}>} */
    this.waiting = new Map();
    this.count = 0;
    this.took = 0; // milliseconds of the latest run
    this.worker.onmessage = ({ data }) => this.arrived(data);
    this.worker.onerror = (event) => this.broken(event.message || "the worker could not start");
    this.worker.postMessage({ binary }, [binary.buffer]);
    this.ready = this.begin(model, facts).then(() => URL.revokeObjectURL(url));
    this.ready.catch(() => undefined); // who waits for it is told
  }

  /**
   * @param {Promise<Uint8Array<ArrayBuffer>>} model
   * @param {{forward: number, level: string}} facts
   */
  async begin(model, { forward, level }) {
    const packed = await model;
    return this.send({ model: packed, forward, level }, [packed.buffer]);
  }

  /**
   * @param {any} message
   * @param {Transferable[]} [given] What is not copied.
   * @returns {Promise<any>}
   */
  send(message, given = []) {
    this.count += 1;
    const id = this.count;
    return new Promise((done, failed) => {
      this.waiting.set(id, { done, failed });
      this.worker.postMessage({ id, ...message }, given);
    });
  }

  /** @param {any} data */
  arrived(data) {
    const found = this.waiting.get(data.id);
    this.waiting.delete(data.id);
    if (data.error) return found?.failed(new Error(`The network failed: ${data.error}`));
    this.took = data.took ?? this.took;
    return found?.done(data);
  }

  /** @param {string} why */
  broken(why) {
    for (const { failed } of this.waiting.values()) failed(new Error(`The network failed: ${why}`));
    this.waiting.clear();
  }

  /**
   * @param {Tensors} feeds
   * @param {string[]} outputs
   * @returns {Promise<Tensors>}
   */
  async run(feeds, outputs) {
    await this.ready;
    const graded = outputs.some((name) => name.startsWith("gradient:"));
    const own = Object.entries(feeds).filter(([name]) => graded || !name.startsWith("weights:")); // as large as the output
    return (await this.send({ feeds: Object.fromEntries(own), outputs, graded })).outputs;
  }
}

/** What the network returns for one input, one set of factors and one class, as far as known. */
export class Answer {
  /** @param {Tensors} feeds */
  constructor(feeds) {
    this.feeds = feeds;
    /** @type {Map<string, Tensor>} */
    this.known = new Map();
    /** @type {Set<string>} */
    this.wanted = new Set();
    /** @type {Map<string, any>} What was made of it. */
    this.made = new Map();
  }

  /** @param {string[]} names */
  missing(names) {
    return names.filter((name) => !this.known.has(name));
  }

  /**
   * What is known of these outputs; null if any is missing, which is then asked for.
   * @param {string[]} names
   */
  get(names) {
    const missing = this.missing(names);
    for (const name of missing) this.wanted.add(name);
    return missing.length ? null : names.map((name) => /** @type {Tensor} */ (this.known.get(name)));
  }

  /** @param {Tensors} outputs */
  add(outputs) {
    for (const [name, each] of Object.entries(outputs)) {
      this.known.set(name, each);
      this.wanted.delete(name);
    }
  }

  /**
   * @template T
   * @param {string} name
   * @param {() => T} make
   * @returns {T}
   */
  once(name, make) {
    if (!this.made.has(name)) this.made.set(name, make());
    return this.made.get(name);
  }
}
