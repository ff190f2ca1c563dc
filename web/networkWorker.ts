// The worker of a page that runs its network: it stands behind the runtime's own code, in one file.

const scope: any = globalThis;
interface Tensor {
  values: Float32Array;
  shape: number[];
}
/** A tensor of the runtime. */
interface Returned {
  dims: number[];
  data: Float32Array;
}

/** Without and with gradients: the runtime computes all of a model, whatever is asked for. */
const sessions: { forward?: Promise<any>; whole?: Promise<any> } = {};
let beginning: Uint8Array;
let begun: Promise<void>;
let level = "disabled"; // of the runtime's optimizations

const started = (model: Uint8Array): Promise<any> =>
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

scope.onmessage = async ({ data }: MessageEvent) => {
  const { id } = data;
  try {
    if (data.binary) {
      begun = begin(data.binary);
      return;
    }
    if (data.model) {
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
    const session = await (graded ? sessions.whole : sessions.forward);
    const feeds: Record<string, unknown> = {};
    for (const [name, { values, shape }] of Object.entries(data.feeds as Record<string, Tensor>)) {
      if (session.inputNames.includes(name)) {
        feeds[name] = new scope.ort.Tensor("float32", values, shape);
      }
    }
    const start = performance.now();
    const found: Record<string, Returned> = await session.run(feeds, data.outputs);
    const outputs = Object.fromEntries(
      Object.entries(found).map((
        [name, { dims, data: values }],
      ) => [name, { shape: [...dims], values }]),
    );
    const buffers = Object.values(outputs).map(({ values }) => values.buffer);
    scope.postMessage({ id, outputs, took: performance.now() - start }, buffers);
  } catch (error) {
    scope.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
};
