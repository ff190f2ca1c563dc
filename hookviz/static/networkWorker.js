// The worker of a page that runs its network: it stands behind the runtime's own code, in one file.

/** @type {any} */
const scope = globalThis;
/** @type {any} */
let session = null;

scope.onmessage = async (/** @type {MessageEvent} */ { data }) => {
  const { id } = data;
  try {
    if (data.model) {
      const { env, InferenceSession } = scope.ort;
      env.wasm.wasmBinary = data.binary;
      env.wasm.numThreads = 1;
      env.logLevel = "error";
      session = await InferenceSession.create(data.model, { executionProviders: ["wasm"] });
      scope.postMessage({ id, inputs: session.inputNames });
      return;
    }
    /** @type {Record<string, any>} */
    const feeds = {};
    for (const [name, { values, shape }] of Object.entries(data.feeds))
      feeds[name] = new scope.ort.Tensor("float32", values, shape);
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
