// Why nothing comes back from the kernel: it is busy, silent or gone.

import assert from "node:assert/strict";
const { test } = Deno;

import { Connection } from "../../web/connection.ts";

/** Check a connection to a fake kernel; `told` is what it reported, and `pass` lets time go by. */
function connected(check, kernel) {
  const listeners = {}, sent = [], told = [], timers = [];
  let now = 0;
  const { setTimeout: later, clearTimeout: clear } = globalThis;
  globalThis.setTimeout = (act, after = 0) => timers.push({ act, at: now + after });
  globalThis.clearTimeout = (id) => timers[id - 1] && (timers[id - 1].act = null);
  const model = {
    widget_manager: { kernel },
    on: (event, act) => (listeners[event] = act),
    send: (said, callbacks) => sent.push({ said, callbacks }),
  };
  const made = new Connection(model, () => told.push(made.words), () => told.push("over"));
  const pass = (milliseconds) => {
    now += milliseconds;
    for (const timer of timers) {
      if (timer.act && timer.at <= now) {
        const { act } = timer;
        timer.act = null;
        act();
      }
    }
  };
  try {
    check(made, { listeners, sent, told, pass });
  } finally {
    Object.assign(globalThis, { setTimeout: later, clearTimeout: clear });
  }
}

const KERNEL = (status) => ({ status, statusChanged: { connect() {}, disconnect() {} } });

test("a kernel that is busy for ten seconds is reported, until it answers", () => {
  connected((made, { told, pass }) => {
    made.send({ ask: "layer" });
    pass(9999);
    assert.equal(made.words, "");
    pass(1);
    pass(0);
    assert.match(made.words, /^The kernel is busy/);
    assert.deepEqual(told, [made.words]);
    made.answered(false);
    assert.equal(made.words, "");
    pass(20000);
    assert.equal(told.length, 1);
    assert.equal(made.refuses(), false);
  }, KERNEL("busy"));
});

test("the time starts again while more answers are on their way", () => {
  connected((made, { pass }) => {
    made.send({ ask: "layer" });
    pass(6000);
    made.answered(true);
    pass(6000);
    assert.equal(made.words, "");
    pass(4000);
    assert.match(made.words, /^No answer from the kernel for 10 seconds/);
    made.status(null, "busy");
    assert.match(made.words, /^The kernel is busy/);
  }, KERNEL("idle"));
});

test("a kernel that is idle without an answer has ended", () => {
  connected((made, { sent, told, pass }) => {
    made.send({ ask: "layer", bytes: new Uint8Array(1) });
    assert.deepEqual(sent[0].said, { ask: "layer" });
    sent[0].callbacks.iopub.status({ content: { execution_state: "idle" } });
    pass(500);
    pass(0);
    assert.equal(made.isOver, true);
    assert.deepEqual(told, ["over", made.words]);
    assert.equal(made.refuses(), true);
    assert.equal(made.refused, 1);
    made.status(null, "restarting"); // said once
    pass(0);
    assert.equal(told.filter((each) => each === "over").length, 1);
  }, KERNEL("idle"));
});

test("an answer within half a second of the idle kernel counts", () => {
  connected((made, { sent, pass }) => {
    made.send({ ask: "layer" });
    made.send({ ask: "picture" });
    sent[0].callbacks.iopub.status({ content: { execution_state: "idle" } });
    made.answered(false);
    pass(20000);
    assert.equal(made.words, "");
  }, KERNEL("idle"));
});

test("a restart and a closed comm end the connection", () => {
  connected((made) => {
    made.status(null, "restarting");
    assert.equal(made.isOver, true);
  }, KERNEL("idle"));
  connected((made, { listeners }) => {
    listeners["comm:close"]();
    assert.equal(made.isOver, true);
  });
});
