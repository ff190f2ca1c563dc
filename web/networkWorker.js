// The worker of a page that runs its network: it stands behind the runtime's own code, in one file.

/** @type {any} */
const scope = globalThis;
/**
 * Without and with gradients: the runtime computes all of a model, whatever is asked for.
 * @type {{forward?: Promise<any>, whole?: Promise<any>}}
 */
const sessions = {};
/** @type {Uint8Array} */
let beginning;
/** @type {Promise<void>} */
let begun;
let level = "disabled"; // of the runtime's optimizations

/** @param {Uint8Array} model @returns {Promise<any>} */
const started = (model) =>
  scope.ort.InferenceSession.create(model, { executionProviders: ["wasm"], graphOptimizationLevel: level });

// An ONNX model that returns its one number: the runtime itself begins with the first model.
const LEAST = "CAk6NwoQCgFhEgFiIghJZGVudGl0eRIBd1oPCgFhEgoKCAgBEgQKAggBYg8KAWISCgoICAESBAoCCAFCBAoAEBI=";

/** @param {Uint8Array<ArrayBuffer>} packed */
async function unpacked(packed) {
  const through = new DecompressionStream("deflate");
  const found = new Response(through.readable).arrayBuffer();
  const writer = through.writable.getWriter();
  await Promise.all([writer.write(packed), writer.close()]);
  return new Uint8Array(await found);
}

/** The runtime, while the page still reads the model. @param {Uint8Array<ArrayBuffer>} binary */
async function begin(binary) {
  const { env } = scope.ort;
  env.wasm.wasmBinary = await unpacked(binary);
  env.wasm.numThreads = 1;
  env.logLevel = "error";
  await started(Uint8Array.from(atob(LEAST), (each) => each.charCodeAt(0)));
}

scope.onmessage = async (/** @type {MessageEvent} */ { data }) => {
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
    /** @type {Record<string, any>} */
    const feeds = {};
    for (const [name, { values, shape }] of Object.entries(data.feeds))
      if (session.inputNames.includes(name)) feeds[name] = new scope.ort.Tensor("float32", values, shape);
    const start = performance.now();
    const found = await session.run(feeds, data.outputs);
    const outputs = Object.fromEntries(
      Object.entries(found).map(([name, { dims, data: values }]) => [name, { shape: [...dims], values }]),
    );
    const buffers = Object.values(outputs).map(({ values }) => values.buffer);
    scope.postMessage({ id, outputs, took: performance.now() - start }, buffers);
  } catch (error) {
    scope.postMessage({ id, error: String(/** @type {any} */ (error)?.message ?? error) });
  }
};
