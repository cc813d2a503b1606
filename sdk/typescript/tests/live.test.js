// The client against the service at HANSEI_URL, which needs no worker.
import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { Hansei } from "@hansei/client";
import { Recorder, trace } from "@hansei/client/recording";
import { newFolder, runAgent } from "./service.js";

const skip = process.env.HANSEI_URL ? false : "HANSEI_URL is not set";

test("an agent run in a real service", { skip }, async () => {
  const hansei = new Hansei();
  const content = "Refund a delivered order to the card that paid for it.";
  const { bullet } = await hansei.createBullet("typescript", { content });
  const advice = await hansei.renderPlaybook("typescript", { query_text: "refund an order" });
  assert.match(advice.text, /Refund a delivered order/);

  const trace = {
    playbook: "typescript",
    external_id: "typescript-1",
    retrieval_id: advice.retrieval_id,
    task_description: "refund an order",
    events: [{ event_type: "llm_response", content: `Refunded [${bullet.id}].` }],
  };
  const receipt = await hansei.createTrace(trace);
  assert.equal((await hansei.createTrace(trace)).duplicate, true);
  await hansei.recordOutcome(receipt.trace_id, "success");
  assert.equal((await hansei.getTrace(receipt.trace_id)).outcome, "success");

  const verdict = await hansei.recordVerdict("typescript", bullet.id, { tag: "helpful" });
  assert.equal(verdict.key, bullet.id);
  await hansei.createTrace({ ...trace, external_id: "typescript-2" });
  const traces = [];
  for await (const { id } of hansei.listTraces({ playbook: ["typescript"], limit: 1 })) traces.push(id);
  assert.equal(traces.length, 2);
  const found = await hansei.searchBullets("typescript", "refund to the card");
  assert.equal(found.results[0].bullet.id, bullet.id);
});

test("a cancelled agent run in a real service", { skip }, async () => {
  const hansei = new Hansei();
  const run = await hansei.createAgentRun("What can be refunded?");
  assert.equal((await hansei.cancelAgentRun(run.id)).state, "cancelled");
  const events = [];
  for await (const { event } of hansei.followAgentRun(run.id)) events.push(event);
  assert.equal(events[0], "run_queued");
});

test("errors of a real service", { skip }, async () => {
  const hansei = new Hansei();
  const missing = "00000000-0000-7000-8000-000000000000";
  await assert.rejects(hansei.getTrace(missing), { code: "not_found", status: 404 });
  await assert.rejects(hansei.recordVerdict("none", "ctx-1", { tag: "great" }), (error) => {
    assert.equal(error.status, 422);
    assert.ok(error.errors.length > 0 && error.requestId);
    return true;
  });
  const stranger = new Hansei({ apiKey: "hsk_wrong" });
  await assert.rejects(stranger.getTrace(missing), { code: "unauthorized", status: 401 });
});

/** A port of the service that can be closed, with all connections, and opened again. */
async function openDoor() {
  const { hostname, port } = new URL(process.env.HANSEI_URL);
  const sockets = new Set();
  const server = createServer((socket) => {
    const target = connect(Number(port), hostname);
    for (const [from, to] of [[socket, target], [target, socket]]) {
      sockets.add(from.on("error", () => {}).on("close", () => to.destroy()));
      from.pipe(to);
    }
  });
  const door = {
    open: () => new Promise((resolve) => server.listen(door.port ?? 0, "127.0.0.1", resolve)),
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      sockets.clear();
    },
  };
  await door.open();
  door.port = server.address().port;
  return door;
}

test("traces of outages arrive in a real service, once each", { skip }, async () => {
  const hansei = new Hansei();
  const door = await openDoor();
  const environment = {
    HANSEI_URL: `http://127.0.0.1:${door.port}`,
    HANSEI_SPOOL_DIR: newFolder(),
  };
  const recorder = new Recorder({ url: environment.HANSEI_URL, spoolDir: environment.HANSEI_SPOOL_DIR });
  const options = { recorder, playbook: "outages", outcome: "success" };
  await hansei.createBullet("outages", { content: "Ask for the order ID." });
  for (let number = 0; number < 30; number++) {
    await trace(`task ${number}`, options, async (t) => {
      t.event("llm_response", await t.render());
      if (number % 10 === 5) door.close();
    });
    if (number % 10 === 5) await new Promise((resolve) => setTimeout(resolve, 20));
    if (number % 10 === 8) await door.open();
  }
  door.close();
  await runAgent(
    `await trace("last", { playbook: "outages" }, () => {});
     await trace("exit", { playbook: "outages" }, () => {}).then(() => process.exit(0));`,
    environment,
  ).ended;
  await door.open();
  assert.equal(await recorder.flush(), 0);
  const tasks = [];
  for await (const { id } of hansei.listTraces({ playbook: ["outages"], limit: 100 })) {
    tasks.push((await hansei.getTrace(id)).task_description);
  }
  assert.equal(tasks.length, 32);
  assert.equal(new Set(tasks).size, 32);
  door.close();
});
