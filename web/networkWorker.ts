// The worker of a page that runs its network: it stands behind the runtime's own code, in one file.

import type { RunnerMessage, Tensors } from "./runner.ts";

/** A tensor of the runtime. */
interface Returned {
  dims: number[];
  data: Float32Array;
}

/** A model that the runtime has started. */
interface Session {
  inputNames: string[];
  run: (feeds: Record<string, unknown>, outputs: string[]) => Promise<Record<string, Returned>>;
}
interface Runtime {
  env: { logLevel: string; wasm: { wasmBinary: Uint8Array; numThreads: number } };
  InferenceSession: { create: (model: Uint8Array, options: unknown) => Promise<Session> };
  Tensor: new (type: "float32", values: Float32Array, shape: number[]) => unknown;
}
/** The scope of a worker, which the page's types lack, with the runtime's one name. */
const scope = globalThis as unknown as {
  ort: Runtime;
  onmessage: (event: MessageEvent) => void;
  postMessage: (message: unknown, given?: Transferable[]) => void;
};

/** Without and with gradients: the runtime computes all of a model, whatever is asked for. */
const sessions: { forward?: Promise<Session>; whole?: Promise<Session> } = {};
let beginning: Uint8Array;
let begun: Promise<void>;
let level = "disabled"; // of the runtime's optimizations

const started = (model: Uint8Array): Promise<Session> =>
  scope.ort.InferenceSession.create(model, {
    executionProviders: ["wasm"],
    graphOptimizationLevel: level,
  });

// An ONNX model that returns its one number: the runtime itself begins with the first model.
const LEAST =
  "CAk6NwoQCgFhEgFiIghJZGVudGl0eRIBd1oPCgFhEgoKCAgBEgQKAggBYg8KAWISCgoICAESBAoCCAFCBAoAEBI=";

async function unpacked(packed: Uint8Array<ArrayBuffer>) {
  const through = new DecompressionStream("deflate");
  const found = new Response(through.readable).arrayBuffer();
  const writer = through.writable.getWriter();
  await Promise.all([writer.write(packed), writer.close()]);
  return new Uint8Array(await found);
}

/** The runtime, while the page still reads the model. */
async function begin(binary: Uint8Array<ArrayBuffer>) {
  const { env } = scope.ort;
  env.wasm.wasmBinary = await unpacked(binary);
  env.wasm.numThreads = 1;
  env.logLevel = "error";
  await started(Uint8Array.from(atob(LEAST), (each) => each.charCodeAt(0)));
}

scope.onmessage = async (event) => {
  const data: RunnerMessage & { id: number } = event.data;
  const { id } = data;
  try {
    if ("binary" in data) {
      begun = begin(data.binary);
      return;
    }
    if ("model" in data) {
      const model = await unpacked(data.model);
      await begun;
      level = data.level;
      beginning = model.subarray(0, data.forward);
      sessions.whole = started(model);
      if (data.forward === model.length) sessions.forward = sessions.whole;
      await sessions.whole;
      scope.postMessage({ id });
      return;
    }
    const { graded } = data; // whether gradients are among the outputs
    if (!graded) sessions.forward ??= started(beginning);
    const session = await (graded ? sessions.whole : sessions.forward)!;
    const feeds: Record<string, unknown> = {};
    for (const [name, { values, shape }] of Object.entries(data.feeds)) {
      if (session.inputNames.includes(name)) {
        feeds[name] = new scope.ort.Tensor("float32", values, shape);
      }
    }
    const start = performance.now();
    const found = await session.run(feeds, data.outputs);
    const outputs: Tensors = Object.fromEntries(
      Object.entries(found).map((
        [name, { dims, data: values }],
      ) => [name, { shape: [...dims], values }]),
    );
    const buffers = Object.values(outputs).map(({ values }) => values.buffer as ArrayBuffer);
    scope.postMessage({ id, outputs, took: performance.now() - start }, buffers);
  } catch (error) {
    scope.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
};
