// The client against a stub server that answers with the given replies and records the requests.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, beforeEach, test } from "node:test";
import { Hansei, HanseiError } from "@hansei/client";

const calls = [];
let replies = [];
let url;

const server = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const { method, headers } = request;
  calls.push({ method, url: request.url, headers, body: body && JSON.parse(body) });
  const reply = replies.shift() ?? {};
  if (reply.cut) return request.socket.destroy();
  if (reply.hang) return;
  const type = reply.text === undefined ? "application/json" : "text/html";
  response.writeHead(reply.status ?? 200, { "content-type": type, ...reply.headers });
  response.end(reply.status === 204 ? "" : (reply.text ?? JSON.stringify(reply.json ?? {})));
});

before(async () => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  calls.length = 0;
  replies = [];
});

const client = (options = {}) => new Hansei({ url, apiKey: "hsk_stub", ...options });
const problem = (status, code, fields = {}, headers = {}) => ({
  status,
  headers: { "content-type": "application/problem+json", ...headers },
  json: { type: `/problems/${code}`, title: "T", status, code, detail: "Not now.", ...fields },
});
const fails = (promise, code) =>
  assert.rejects(promise, (error) => {
    assert.ok(error instanceof HanseiError, String(error));
    assert.equal(error.code, code);
    return true;
  });

test("a retried change keeps its idempotency key, the next change has another", async () => {
  replies = [problem(503, "unavailable", {}, { "retry-after": "0" }), { cut: true }, { status: 201 }];
  await client().createTrace({ events: [] });
  await client().createTrace({ events: [] });
  const keys = calls.map((call) => call.headers["idempotency-key"]);
  assert.equal(new Set(keys.slice(0, 3)).size, 1);
  assert.ok(keys[0]);
  assert.notEqual(keys[3], keys[0]);
  assert.equal(calls[0].headers.authorization, "Bearer hsk_stub");
});

test("a render has no idempotency key", async () => {
  await client().renderPlaybook("support", { query_text: "refund" });
  assert.equal(calls[0].headers["idempotency-key"], undefined);
  assert.deepEqual(calls[0].body, { query_text: "refund" });
});

test("a problem becomes an error with its fields", async () => {
  const errors = [{ field: "events", message: "At least one is needed." }];
  replies = [problem(422, "invalid", { errors, limit: 3 }, { "x-request-id": "req-1" })];
  await assert.rejects(client().createTrace({}), (error) => {
    const { message, status, code, requestId } = error;
    assert.deepEqual([message, status, code, requestId], ["Not now.", 422, "invalid", "req-1"]);
    assert.deepEqual(error.errors, errors);
    assert.equal(error.problem.limit, 3);
    return true;
  });
  assert.equal(calls.length, 1);
});

test("a Retry-After longer than ten seconds is not waited for", async () => {
  replies = [problem(429, "rate_limited", {}, { "retry-after": "11" })];
  await assert.rejects(client().getRun("r1"), { code: "rate_limited", retryAfter: 11 });
  assert.equal(calls.length, 1);
});

test("retries end", async () => {
  replies = Array.from({ length: 9 }, () => problem(503, "unavailable", {}, { "retry-after": "0" }));
  await fails(client({ maxRetries: 2 }).getRun("r1"), "unavailable");
  assert.equal(calls.length, 3);
});

test("pages of proxies, redirects and broken JSON are no results", async () => {
  const quick = client({ maxRetries: 0 });
  for (const reply of [
    { status: 502, text: "<html>" },
    { status: 200, text: "<html>" },
    { status: 307, headers: { location: "/elsewhere" } },
    { text: "{", headers: { "content-type": "application/json" } },
  ]) {
    replies = [reply];
    await fails(quick.getRun("r1"), "unexpected_response");
  }
  assert.equal(calls.length, 4);
});

test("a timeout is not retried, and an abort ends the call with its reason", async () => {
  replies = [{ hang: true }, { hang: true }];
  await fails(client({ timeoutSeconds: 0.5 }).getRun("r1"), "timed_out");
  const reason = new Error("enough");
  const signal = AbortSignal.abort(reason);
  await assert.rejects(client().getRun("r1", { signal }), reason);
  assert.equal(calls.length, 1);
});

test("a list fetches the next page when it is needed", async () => {
  replies = [
    { json: { items: [{ name: "a" }, { name: "b" }], next_cursor: "c+1" } },
    { json: { items: [{ name: "c" }], next_cursor: null } },
  ];
  const names = [];
  for await (const playbook of client().listPlaybooks({ limit: 2 })) {
    if (names.length === 0) assert.equal(calls.length, 1);
    names.push(playbook.name);
  }
  assert.deepEqual(names, ["a", "b", "c"]);
  assert.equal(calls[1].url, "/api/v1/playbooks?limit=2&cursor=c%2B1");
});

test("names are escaped, and names that would change the path are refused", async () => {
  await client().recordVerdict("a/b?", "ctx-00001", { tag: "helpful" });
  assert.equal(calls[0].url, "/api/v1/playbooks/a%2Fb%3F/bullets/ctx-00001/verdicts");
  for (const name of ["", ".", "..", "\ud800"]) {
    await fails(client().renderPlaybook(name), "invalid_argument");
  }
  assert.equal(calls.length, 1);
});

test("events of an agent run continue after a lost connection", async () => {
  const stream = (text) => ({ text, headers: { "content-type": "text/event-stream" } });
  replies = [
    stream('id: 1\nevent: run_queued\ndata: {"a": "x: y"}\n\n'),
    { cut: true },
    stream(': comment\n\nid: 2\nevent: run_finished\ndata: {}\n\n'),
    stream(""),
    { json: { state: "done" } },
  ];
  const events = [];
  for await (const event of client().followAgentRun("r1")) events.push(event);
  assert.deepEqual(events, [
    { id: 1, event: "run_queued", data: { a: "x: y" } },
    { id: 2, event: "run_finished", data: {} },
  ]);
  assert.deepEqual(
    calls.slice(0, 4).map((call) => call.headers["last-event-id"]),
    ["0", "1", "1", "2"],
  );
});

test("a response of another form is an unexpected response", async () => {
  const nothing = { text: "null", headers: { "content-type": "application/json" } };
  const pages = [nothing, { json: [1] }, { json: {} }, { json: { items: "abc" } }, { status: 204 }];
  for (const reply of pages) {
    replies = [reply];
    await fails(client().listTraces().next(), "unexpected_response");
  }
  replies = [nothing];
  await fails(client().waitForRun("r1"), "unexpected_response");
  replies = [problem(400, "invalid", { errors: 5 })];
  await assert.rejects(client().getTrace("t1"), (error) => error.errors.length === 0);
});

test("events that repeat or are damaged end followAgentRun", async () => {
  const events = (text) => ({ text, headers: { "content-type": "text/event-stream" } });
  const collect = async () => {
    for await (const event of client().followAgentRun("a1")) assert.equal(event.id, 1);
  };
  const first = "id: 1\nevent: x\ndata: {}\n\n";
  for (const second of [first, "id: x\ndata: {}\n\n", "id: 2\ndata: {\n\n", "id: 2\ndata: 5\n\n"]) {
    replies = [events(first), events(second)];
    await fails(collect(), "unexpected_response");
    assert.equal(calls.length, 2);
    calls.length = 0;
  }
});

test("waitForRun polls until the run has ended or the time is over", async () => {
  replies = [{ json: { state: "queued" } }, { json: { state: "done" } }];
  assert.equal((await client().waitForRun("r1")).state, "done");
  replies = [{ json: { state: "queued" } }];
  await fails(client().waitForRun("r1", { timeoutSeconds: 0.01 }), "timed_out");
});

test("a wrong configuration is an error of its own", async () => {
  for (const options of [
    { url: "localhost" },
    { url: "ftp://host" },
    { url, apiKey: "two words" },
    { url, timeoutSeconds: 0 },
  ]) {
    assert.throws(() => new Hansei(options), { code: "not_configured" });
  }
  replies = [problem(401, "unauthorized")];
  await assert.rejects(new Hansei({ url, apiKey: "" }).getRun("r1"), /No API key/);
  assert.equal(calls[0].headers.authorization, undefined);
});
