// Undo and redo without a browser: what is asked of the source, and what is shown.

import assert from "node:assert/strict";
import { test } from "node:test";
import { History } from "../../web/history.ts";

const CLASS = (number, chosen = true) => ({
  name: `class ${number}`,
  number,
  written: String(number),
  chosen,
});

/** An app whose kernel does what it was asked when `work` is called. */
function app() {
  const asked = [];
  const made = {
    at: { layer: "a", channel: 0 },
    awaited: null,
    facts: { target: CLASS(6, false), edits: [] },
    source: {
      live: true,
      busy: false,
      requested: 0,
      edit: (request) => made.ask(() => made.facts.edits = request.keys.map((key) => ({ key }))),
      retarget: (target) => made.ask(() => made.facts.target = target),
      input: { key: 1 },
      restore: (input) => made.source.input = input,
    },
    goTo: (at) => Object.assign(made, { at, awaited: null }),
    schedule: () => {},
    ask(act) {
      asked.push(act);
      made.source.busy = true;
      made.source.requested += 1;
    },
    work(isLoaded = true) {
      asked.shift()();
      made.source.busy = asked.length > 0;
      history.record(isLoaded);
    },
    shown: () => [
      made.at.layer,
      made.at.channel,
      made.facts.target.number,
      made.facts.edits.map(({ key }) => key).join(),
    ],
  };
  const history = new History(made);
  const move = (changes) => {
    Object.assign(made.at, changes);
    history.walked = -Infinity; // as after a while
    history.record();
  };
  const edit = (keys) => made.source.edit({ keys });
  const go = (by) => {
    history.go(by);
    while (asked.length) made.work();
    history.record();
    return made.shown();
  };
  history.record();
  return { made, history, move, edit, go };
}

test("one history of layers, channels, targets and edits", () => {
  const { made, history, move, edit, go } = app();
  move({ layer: "b", channel: 3 });
  made.source.retarget(CLASS(2));
  made.work();
  edit([0]);
  made.work();
  move({ channel: 4 });
  assert.deepEqual(go(-1), ["b", 3, 2, "0"]);
  assert.deepEqual(go(-1), ["b", 3, 2, ""]);
  assert.deepEqual(go(-1), ["b", 3, 6, ""]);
  assert.equal(made.facts.target.chosen, false); // it follows the prediction again
  assert.deepEqual(go(-1), ["a", 0, 6, ""]);
  assert.deepEqual(go(-1), ["a", 0, 6, ""]); // there is nothing before
  for (let n = 0; n < 5; n++) go(1);
  assert.deepEqual(made.shown(), ["b", 4, 2, "0"]);
  go(-1);
  move({ channel: 9 }); // what was undone is forgotten
  assert.deepEqual(go(1), ["b", 9, 2, "0"]);
  assert.equal(history.at, history.moments.length - 1);
  assert.deepEqual(go(-1), ["b", 3, 2, "0"]);
});

test("a change of the input is undone in its order", () => {
  const { made, move, go } = app();
  const shown = () => [made.at.channel, made.source.input.key];
  move({ channel: 3 });
  made.source.input = { key: 2 };
  move({});
  move({ channel: 4 });
  go(-1);
  assert.deepEqual(shown(), [3, 2]);
  go(-1);
  assert.deepEqual(shown(), [3, 1]);
  go(1);
  assert.deepEqual(shown(), [3, 2]);
});

test("frames of the camera are one step, and the last one comes back", () => {
  const { made, move, go } = app();
  for (const frame of [1, 2, 3]) {
    made.source.input = { key: 0, frame };
    move({});
  }
  made.source.input = { key: 2 };
  move({});
  go(-1);
  assert.equal(made.source.input.frame, 3);
  go(-1);
  assert.equal(made.source.input.key, 1);
});

test("a walk in quick succession is one step", () => {
  const { made, history, go } = app();
  for (let channel = 1; channel < 30; channel++) {
    made.at.channel = channel;
    history.record();
  }
  assert.deepEqual(go(-1), ["a", 0, 6, ""]);
  assert.deepEqual(go(1), ["a", 29, 6, ""]);
});

test("a layer that was left before its data came is redone with its own channel", () => {
  const { made, history, move, go } = app();
  const load = (channel) => {
    made.awaited = null;
    made.at.channel = channel;
    history.record();
  };
  move({ channel: 4 });
  made.at = { ...made.at, layer: "b" };
  made.awaited = "own";
  history.walked = -Infinity; // as after a while
  history.record(false);
  assert.deepEqual(go(-1), ["a", 4, 6, ""]);
  assert.equal(made.awaited, null);
  history.go(1);
  history.record(false);
  assert.equal(made.awaited, "own");
  load(7);
  assert.deepEqual(go(-1), ["a", 4, 6, ""]);
  assert.deepEqual(go(1), ["b", 7, 6, ""]);
  assert.equal(made.awaited, null);
  assert.deepEqual(go(1), ["b", 7, 6, ""]); // it is one step
});

test("an edit that is not shown yet is undone, and can be redone", () => {
  const { edit, go } = app();
  edit([0]);
  assert.deepEqual(go(-1), ["a", 0, 6, ""]);
  assert.deepEqual(go(1), ["a", 0, 6, "0"]);
  edit([0, 1]);
  assert.deepEqual(go(-1), ["a", 0, 6, "0"]);
});

test("an edit during a step back follows what the step shows", () => {
  const { made, history, edit, go } = app();
  edit([0]);
  made.work();
  edit([0, 1]);
  made.work();
  history.go(-1);
  edit([0, 2]);
  made.work();
  made.work();
  assert.deepEqual(made.shown(), ["a", 0, 6, "0,2"]);
  assert.deepEqual(go(-1), ["a", 0, 6, "0"]);
  assert.deepEqual(go(-1), ["a", 0, 6, ""]);
});

test("a step forth is shown although the step back before it is under way", () => {
  const { made, history, edit } = app();
  made.source.retarget(CLASS(2));
  made.work();
  edit([0]);
  made.work();
  for (const by of [-1, -1, 1, 1]) history.go(by);
  while (made.source.busy) made.work();
  assert.deepEqual(made.shown(), ["a", 0, 2, "0"]);
});

test("a redo to the last moment, seen while the kernel is busy, is the last one", () => {
  const { made, history, edit, go } = app();
  for (const keys of [[0], [0, 1]]) {
    edit(keys);
    made.work();
  }
  go(-1);
  history.go(1);
  history.record(); // the edit is not shown yet
  made.work();
  assert.deepEqual(made.shown(), ["a", 0, 6, "0,1"]);
  assert.ok(history.isLast);
  assert.deepEqual(go(1), ["a", 0, 6, "0,1"]);
});

test("a step back leads to the position that was looked at", () => {
  const { made, history, move, go } = app();
  made.at.place = [0.5, 0.2]; // this does not count as a step
  history.record();
  move({ layer: "b", place: [0.1, 0.1] });
  go(-1);
  assert.deepEqual(made.at, { layer: "a", channel: 0, place: [0.5, 0.2] });
});

test("a target is a step, also where an edit comes before its layer is loaded", () => {
  const { made, history, edit, go } = app();
  made.source.retarget(CLASS(2));
  made.work(false);
  edit([0]);
  made.work();
  assert.deepEqual(go(-1), ["a", 0, 2, ""]);
  assert.deepEqual(go(-1), ["a", 0, 6, ""]);
  made.at.layer = "b";
  history.record(false);
  assert.equal(history.at, 0); // the layer's own channel is not known yet
});

test("what the kernel cannot bring back is left out", () => {
  const { made, move, edit, go } = app();
  edit([0]); // a stroke on a picture
  made.work();
  edit([]); // another picture
  made.work();
  move({ channel: 5 });
  made.source.edit = () => made.ask(() => {});
  assert.deepEqual(go(-1), ["a", 0, 6, ""]);
  assert.deepEqual(go(-1), ["a", 0, 6, ""]);
  assert.deepEqual(go(-1), ["a", 0, 6, ""]);
  go(1);
  go(1);
  assert.deepEqual(go(1), ["a", 5, 6, ""]);
});
