import assert from "node:assert/strict";
const { test } = Deno;

import { Moves, Requests } from "../../web/moves.ts";

/** What is sent, and a kernel that has handled none of it. */
function far() {
  const kernel = { seen: 0 };
  /** @type {any[]} */
  const sent = [];
  const moves = new Moves(() => kernel.seen);
  return { kernel, sent, moves, requests: new Requests(moves, (message) => sent.push(message)) };
}

test("what was changed here since stays, and a channel with its layer", () => {
  const { kernel, moves } = far();
  moves.note({ layer: "b" });
  const said = { layer: "a", channel: 3, cmap: "gray" };
  assert.deepEqual(moves.merged(said), { cmap: "gray" });
  moves.note({ cmap: "magma" });
  kernel.seen = 1;
  assert.deepEqual(moves.merged(said), { layer: "a", channel: 3 });
  assert.deepEqual(moves.unhandled, { cmap: "magma" });
  kernel.seen = 2;
  assert.deepEqual(moves.merged(said), said);
});

test("one request at a time; what waits is replaced by what is like it", () => {
  const { kernel, sent, moves, requests } = far();
  moves.note({ channel: 5 });
  for (const number of [1, 2, 3]) requests.add({ set: "target", number });
  assert.deepEqual(sent, [{ set: "target", number: 1, settings: { channel: 5 }, moved: 2 }]);
  assert.equal(requests.written, "3");
  for (const factor of [0.5, 0.4]) requests.add({ set: "factor", layer: "a", channel: 1, factor });
  requests.add({ set: "edits", keys: [1] });
  requests.add({ set: "edits", keys: [] });
  for (let seen = 2; sent.length < 5; seen += 1) {
    kernel.seen = seen;
    requests.next();
  }
  assert.deepEqual(
    sent.map(({ set, number, factor }) => [set, number ?? factor]),
    [["target", 1], ["target", 3], ["factor", 0.4], ["edits", undefined], ["edits", undefined]],
  );
  kernel.seen = moves.count;
  requests.next();
  assert.equal(requests.written, null);
  assert.equal(requests.doing, 0);
});

test("a second side is taken from the class that was asked for, not from the one shown", () => {
  const { kernel, requests } = far();
  assert.equal(requests.written, null);
  requests.add({ set: "target", number: 282 });
  assert.equal(requests.written, "282");
  requests.add({ set: "target", written: "282 - 285" });
  assert.equal(requests.written, "282 - 285");
  kernel.seen = 100;
  requests.next();
  kernel.seen = 200;
  requests.next();
  assert.equal(requests.written, null);
});
