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

/** @param {Uint8Array} model @returns {Promise<any>} */
const started = (model) => scope.ort.InferenceSession.create(model, { executionProviders: ["wasm"] });

scope.onmessage = async (/** @type {MessageEvent} */ { data }) => {
  const { id } = data;
  try {
    if (data.model) {
      const { env } = scope.ort;
      env.wasm.wasmBinary = data.binary;
      env.wasm.numThreads = 1;
      env.logLevel = "error";
      beginning = data.model.slice(0, data.forward);
      sessions.whole = started(data.model);
      if (data.forward === data.model.length) sessions.forward = sessions.whole;
      await sessions.whole;
      scope.postMessage({ id });
      return;
    }
    const graded = data.outputs.some((/** @type {string} */ name) => name.startsWith("gradient:"));
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
