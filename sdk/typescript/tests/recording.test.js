// The recorder: what it records, and that it loses nothing and never stops the agent.
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readdirSync, renameSync, rmdirSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { Recorder, currentTrace, flush, render, tool, trace } from "@hansei/client/recording";
import { newFolder, problem, runAgent, StubService } from "./service.js";

const service = new StubService();
let spoolDir;
let warnings;
const { warn } = console;

before(() => service.start());
after(async () => {
  console.warn = warn;
  await service.stop();
});
beforeEach(() => {
  service.traces.clear();
  service.requests.length = 0;
  service.override = () => undefined;
  spoolDir = newFolder();
  warnings = [];
  console.warn = (text) => warnings.push(text);
});
afterEach(async () => {
  service.override = () => undefined;
  await flush();
});

const newRecorder = (options = {}) =>
  new Recorder({ url: service.url, apiKey: "hsk_stub", spoolDir, ...options });
const environment = () => ({
  HANSEI_URL: service.url,
  HANSEI_API_KEY: "hsk_stub",
  HANSEI_SPOOL_DIR: spoolDir,
});
const only = () => {
  assert.equal(service.traces.size, 1);
  return [...service.traces.values()][0];
};
const files = (folder = spoolDir) =>
  readdirSync(folder, { recursive: true }).filter((name) => /\.(open|ready)$/.test(name));

test("a trace has its events, its fields and no outcome of its own", async () => {
  const recorder = newRecorder();
  const options = { recorder, playbook: "support", projectId: "p", taskKey: "k", tools: ["refund"] };
  const result = await trace("refund an order", options, async (t) => {
    const refund = tool("refund", async ({ order }) => {
      assert.equal(currentTrace(), t);
      if (order === 8) throw new Error("order 8 is pending");
      return { refunded: order };
    });
    await refund({ order: 7 });
    await assert.rejects(refund({ order: 8 }), /pending/);
    assert.equal(t.tool("add", (a, b) => a + b)(1, 2), 3);
    t.event("llm_response", "Refunded.", { metadata: { model: "m" }, agent: "a" });
    t.update({ generatedAnswer: "Refunded." });
    return 5;
  });
  assert.equal(result, 5);
  assert.equal(currentTrace(), undefined);
  assert.equal(await recorder.flush(), 0);
  const { events, external_id, ...fields } = only();
  assert.match(external_id, /^sdk-[0-9a-f]{32}$/);
  assert.deepEqual(fields, {
    task_description: "refund an order",
    playbook: "support",
    project_id: "p",
    task_key: "k",
    tools: ["refund"],
    generated_answer: "Refunded.",
    metadata: {},
  });
  assert.deepEqual(
    events.map(({ event_type, tool_name, content, error }) => [event_type, tool_name, content, error]),
    [
      ["tool_call", "refund", '{"order":7}', undefined],
      ["tool_response", "refund", '{"refunded":7}', undefined],
      ["tool_call", "refund", '{"order":8}', undefined],
      ["tool_response", "refund", "Error: order 8 is pending", { message: "Error: order 8 is pending" }],
      ["tool_call", "add", "[1,2]", undefined],
      ["tool_response", "add", "3", undefined],
      ["llm_response", undefined, "Refunded.", undefined],
    ],
  );
  assert.equal(events[0].metadata.call_id, events[1].metadata.call_id);
  assert.notEqual(events[0].metadata.call_id, events[2].metadata.call_id);
  assert.match(service.requests.at(-1).url, /reflect=auto/);
  assert.deepEqual(files(), []);
});

test("outcomes are stated, or follow from the error that leaves the function", async () => {
  const recorder = newRecorder();
  const outcome = async (run) => {
    service.traces.clear();
    await trace("x", { recorder }, run).catch(() => {});
    await recorder.flush();
    return only().outcome;
  };
  const named = (name) => Object.assign(new Error("no"), { name });
  assert.equal(await outcome((t) => t.outcome("failure", "wrong order")), "failure");
  assert.deepEqual(only().error, { error_message: "wrong order" });
  assert.equal(await outcome(() => {}), undefined);
  assert.equal(await outcome(() => { throw new Error("no"); }), "error");
  assert.equal(only().events[0].event_type, "error_event");
  assert.equal(await outcome(async () => { throw named("TimeoutError"); }), "timeout");
  assert.equal(await outcome(() => { throw named("AbortError"); }), undefined);
  assert.equal(only().metadata.stopped_by, "AbortError");
  assert.equal(await outcome((t) => { t.outcome("partial"); throw new Error("late"); }), "partial");
  assert.equal(await outcome((t) => { t.outcome("success"); t.outcome(null); }), null);
});

test("a misspelt name is refused where it is written", async () => {
  const recorder = newRecorder();
  await assert.rejects(trace("x", { recorder, playbok: "p" }, () => {}), /no field `playbok`/);
  await assert.rejects(trace("x", { recorder, outcome: "sucess" }, () => {}), /must be one of success/);
  await trace("x", { recorder }, (t) => {
    assert.throws(() => t.outcome("sucess"), TypeError);
    assert.throws(() => t.event("toolcall", ""), TypeError);
    assert.throws(() => t.update({ answer: "a" }), TypeError);
  });
});

test("concurrent and nested traces keep apart", async () => {
  const recorder = newRecorder();
  await Promise.all(
    Array.from({ length: 20 }, (_, number) =>
      trace(`task ${number}`, { recorder }, async () => {
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 10));
        currentTrace().event("system_event", String(number));
      }),
    ),
  );
  await trace("outer", { recorder, externalId: "outer" }, () => trace("inner", { recorder }, () => {}));
  assert.equal(await flush(), 0);
  const traces = [...service.traces.values()];
  for (const { task_description, events } of traces.filter((each) => /\d/.test(each.task_description))) {
    assert.deepEqual(events.map(({ content }) => `task ${content}`), [task_description]);
  }
  const inner = traces.find((each) => each.task_description === "inner");
  assert.equal(inner.metadata.parent_external_id, "outer");
});

test("values of any form are recorded", async () => {
  const recorder = newRecorder();
  const cyclic = { name: "a" };
  cyclic.self = cyclic;
  const hostile = { get field() { throw new Error("no"); } };
  const values = [
    [cyclic, '{"name":"a","self":"<circular>"}'],
    [[NaN, 5n, undefined], '["NaN","5",null]'],
    [new Map([["a", new Set([1])]]), '{"a":[1]}'],
    [new Uint8Array(5), '"<5 bytes>"'],
    [new TypeError("no"), '"TypeError: no"'],
    [hostile, '"<an object that cannot be read>"'],
    ["\ud800", "\ud800"],
  ];
  await trace("x", { recorder }, (t) => {
    for (const [value] of values) t.event("system_event", value);
    t.event("system_event", "x".repeat(1_000_005));
  });
  assert.equal(await recorder.flush(), 0);
  const { events } = only();
  assert.deepEqual(events.slice(0, -1).map((each) => each.content), values.map(([, text]) => text));
  assert.equal(events.at(-1).content.length, 1_000_000);
  assert.equal(events.at(-1).metadata.truncated_characters, 5);
});

test("a large trace is sent in parts, and continues after an interruption", async () => {
  const recorder = newRecorder();
  let appends = 0;
  service.override = ({ url }) =>
    url.endsWith("/events") && ++appends === 3 ? problem(503, "unavailable") : undefined;
  await trace("large", { recorder, outcome: "failure" }, (t) => {
    for (let number = 0; number < 6; number++) t.event("system_event", `${number}`.repeat(900_000));
    for (let number = 0; number < 2_500; number++) t.event("system_event", String(number));
  });
  assert.equal(await recorder.flush(), 0);
  const { events, state, outcome } = only();
  assert.deepEqual([events.length, state, outcome], [2_506, "closed", "failure"]);
  assert.deepEqual(events.slice(6).map((each) => each.content), Array.from({ length: 2_500 }, (_, n) => `${n}`));
  assert.ok(appends > 3);
});

test("sampling, masking and the switch-off", async () => {
  const none = newRecorder({ sampleRate: 0 });
  await trace("x", { recorder: none }, (t) => t.event("system_event", "x"));
  assert.equal(await none.flush(), 0);
  assert.equal(service.requests.length, 0);
  assert.throws(() => newRecorder({ sampleRate: 2 }), RangeError);

  const recorder = newRecorder({ mask: (text) => text.replaceAll("secret", "***") });
  const options = { recorder, playbook: "secret", metadata: { a: ["secret"] } };
  await trace("a secret", options, (t) => t.event("system_event", { key: "secret" }));
  await recorder.flush();
  const { playbook, task_description, metadata, events } = only();
  assert.deepEqual([playbook, task_description, metadata], ["secret", "a ***", { a: ["***"] }]);
  assert.equal(events[0].content, '{"key":"***"}');

  service.traces.clear();
  const broken = newRecorder({ mask: () => { throw new Error("no"); } });
  await trace("a secret", { recorder: broken }, () => {});
  await broken.flush();
  assert.equal(only().task_description, "[not recorded: the mask failed]");

  const off = runAgent(
    `await trace("x", { playbook: "p" }, async (t) => console.log(JSON.stringify(await t.render())));
     console.log(await hansei.flush());`,
    { ...environment(), HANSEI_ENABLED: "off" },
  );
  assert.equal((await off.ended).output, '""\n0\n');
  const unset = runAgent(`console.log(await trace("x", {}, () => 5))`, { HANSEI_URL: "" });
  assert.match((await unset.ended).output, /^hansei: Agent runs are not recorded\. .*No URL.*\n5\n$/);
});

test("render never rejects, waits no longer than its setting, and returns the last block", async () => {
  const recorder = newRecorder({ renderTimeoutSeconds: 0.3 });
  const options = { recorder, playbook: "support", projectId: "p" };
  const advice = (playbook = "support") => trace("task", { ...options, playbook }, (t) => t.render());
  assert.equal(await advice(), service.text);
  await recorder.flush();
  assert.equal(only().retrieval_id, "r-1");
  const { body } = service.requests.find(({ url }) => url.endsWith("/playbooks/support/render"));
  assert.equal(body.query_text, "task");
  assert.equal(body.project_id, "p");
  assert.match(body.session_id, /^sdk-/);

  service.override = ({ url }) => (url.endsWith("/render") ? { hang: true } : undefined);
  const started = performance.now();
  assert.equal(await advice(), service.text);
  const waited = performance.now() - started;
  assert.ok(waited > 200 && waited < 1_000, `${waited} ms`);
  assert.equal(await advice("other"), "");
  assert.equal(await render("support", "q", { recorder }), service.text);
  assert.ok(performance.now() - started < waited + 200, "the circuit did not open");
  assert.equal(warnings.length, 1);

  const closed = newRecorder({ url: "http://127.0.0.1:1" });
  assert.equal(await render("support", "x", { recorder: closed }), "");
  assert.equal(await trace("no playbook", { recorder }, (t) => t.render()), "");
});

test("traces of an outage arrive after it, once each", async () => {
  const recorder = newRecorder();
  const record = (number) => trace(`task ${number}`, { recorder }, (t) => t.event("system_event", "x"));
  await record(0);
  assert.equal(await recorder.flush(), 0);
  await service.stop();
  for (let number = 1; number < 30; number++) await record(number);
  assert.equal(await recorder.flush(0.1), 29);
  assert.equal(files().length, 29);
  await service.start();
  assert.equal(await recorder.flush(), 0);
  assert.equal(service.traces.size, 30);
  assert.deepEqual(files(), []);
  assert.equal(warnings.filter((text) => text.includes("not sent yet")).length, 1);
});

test("a refused trace is stored apart and does not block the others", async () => {
  const recorder = newRecorder();
  let failures = 0;
  service.override = ({ body }) => {
    if (body.task_description === "bad") return problem(422, "invalid", "No.");
    if (body.task_description === "poison") return problem(500, "internal_error", `${++failures}`);
    if (body.task_description === "busy" && ++failures % 2) return problem(409, "in_progress");
    return undefined;
  };
  for (const task of ["bad", "busy", "good"]) await trace(task, { recorder }, () => {});
  assert.equal(await recorder.flush(), 1);
  assert.equal(await recorder.flush(), 0);
  assert.equal(service.traces.size, 2);
  assert.equal(files().length, 1);
  assert.match(files()[0], /rejected/);
});

test("a process that ends at once or is killed loses nothing", async () => {
  await service.stop();
  // An agent that still runs keeps its trace.
  const running = runAgent(
    `trace("running", {}, async (t) => {
       console.log("open");
       await new Promise((resolve) => setTimeout(resolve, 60_000));
     })`,
    environment(),
  );
  await new Promise((resolve) => running.child.stdout.once("data", resolve));
  const agent = `trace("finished", {}, () => {}).then(() => process.exit(0));`;
  await runAgent(agent, environment()).ended;
  const { signal } = await runAgent(
    `trace("killed", {}, async (t) => {
       for (let number = 0; number < 100; number++) t.event("system_event", String(number));
       process.kill(process.pid, "SIGKILL");
     })`,
    environment(),
  ).ended;
  assert.equal(signal, "SIGKILL");
  assert.equal(files().length, 3);

  await service.start();
  const next = runAgent(`hansei.configure({}); console.log(await hansei.flush())`, environment());
  assert.match((await next.ended).output, /^0\n/);
  const tasks = new Map([...service.traces.values()].map((each) => [each.task_description, each]));
  assert.deepEqual([...tasks.keys()].sort(), ["finished", "killed"]);
  assert.equal(tasks.get("killed").events.length, 100);
  assert.equal(tasks.get("killed").outcome, undefined);
  assert.match(tasks.get("killed").metadata.interrupted, /process ended/);
  assert.match(files().join(), /\.open$/);
  running.child.kill("SIGKILL");
  await running.ended;
  assert.equal(await newRecorder().flush(), 0);
  assert.equal(service.traces.size, 3);
});

test("a process that ends normally sends its traces and does not wait for a missing service", async () => {
  const agent = `for (const task of ["a", "b", "c"]) await trace(task, {}, () => {});`;
  await runAgent(agent, environment()).ended;
  assert.equal(service.traces.size, 3);
  const started = performance.now();
  await runAgent(agent, { ...environment(), HANSEI_URL: "http://127.0.0.1:1" }).ended;
  assert.ok(performance.now() - started < 3_000);
});

test("without a writable folder, traces are in memory", async () => {
  const blocked = join(newFolder(), "file");
  writeFileSync(blocked, "");
  const recorder = newRecorder({ spoolDir: blocked });
  await trace("x", { recorder }, (t) => t.event("system_event", "y"));
  assert.equal(await recorder.flush(), 0);
  assert.equal(only().events[0].content, "y");
  assert.match(warnings[0], /spool on disk fails/);
});

test("what the disk does not take waits in memory until the run has ended", async () => {
  const recorder = newRecorder();
  await trace("x", { recorder }, (t) => {
    t.event("system_event", "first");
    const file = join(spoolDir, files()[0]);
    renameSync(file, `${file}.away`);
    mkdirSync(file); // it cannot be appended to
    t.event("system_event", "second");
    rmdirSync(file);
    renameSync(`${file}.away`, file);
    t.event("system_event", "third");
  });
  assert.equal(await recorder.flush(), 0);
  assert.deepEqual(only().events.map((each) => each.content), ["first", "second", "third"]);
  assert.equal(warnings.length, 1);
});

test("a line that was cut on a full disk spoils no other one", async () => {
  newRecorder();
  const lines = ['T{"external_id":"cut"}', 'E{"event_type":"system_ev', 'E{"event_type":"error_event"}'];
  const host = hostname().replace(/[^\w-]/g, "_");
  const name = `sdk-1.${host}-${process.pid}-1.open`; // the process ID was reused
  writeFileSync(join(spoolDir, readdirSync(spoolDir)[0], name), `\n${lines.join("\n")}`);
  assert.equal(await newRecorder().flush(), 0);
  assert.deepEqual(only().events, [{ event_type: "error_event" }]);
  assert.ok(only().metadata.interrupted);
});

test("a folder that others can write is not used", async () => {
  newRecorder();
  chmodSync(join(spoolDir, readdirSync(spoolDir)[0]), 0o777);
  await trace("x", { recorder: newRecorder() }, () => assert.deepEqual(files(), []));
  assert.match(warnings[0], /Another user/);
});
