// A service for the tests of the recorder. It stores traces, and can be stopped and started again.
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

export class StubService {
  traces = new Map(); // by external_id
  requests = [];
  text = "- [ctx-00001] Ask for the order ID.";
  /** Answers a request in another way, if it returns something. */
  override = () => undefined;
  #port = 0;
  #server;

  get url() {
    return `http://127.0.0.1:${this.#port}`;
  }

  async start() {
    this.#server = createServer(async (request, response) => {
      let body = "";
      for await (const chunk of request) body += chunk;
      body = body && JSON.parse(body);
      const call = { method: request.method, url: request.url, body };
      this.requests.push(call);
      const reply = this.override(call) ?? this.#reply(call);
      if (reply.hang) return;
      const { status = 200, json = {} } = reply;
      const type = status < 400 ? "application/json" : "application/problem+json";
      response.writeHead(status, { "content-type": type }).end(JSON.stringify(json));
    });
    await new Promise((resolve) => this.#server.listen(this.#port, "127.0.0.1", resolve));
    this.#port = this.#server.address().port;
    return this;
  }

  async stop() {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #reply({ method, url, body }) {
    const [, , , resource, id, action] = new URL(url, this.url).pathname.split("/");
    if (resource === "playbooks") return { json: { text: this.text, retrieval_id: "r-1" } };
    if (id === undefined) {
      const duplicate = this.traces.has(body.external_id);
      if (!duplicate) this.traces.set(body.external_id, { events: [], ...body });
      return { status: duplicate ? 200 : 201, json: { trace_id: body.external_id, duplicate } };
    }
    const trace = this.traces.get(id);
    if (action === "events") trace.events.push(...body.events);
    if (action === "close") Object.assign(trace, body, { state: "closed" });
    if (method === "GET") return { json: { ...trace, event_count: trace.events.length } };
    return { json: {} };
  }
}

export const newFolder = () => mkdtempSync(join(tmpdir(), "hansei-"));

export const problem = (status, code, detail = "Not now.") => ({
  status,
  json: { type: `/problems/${code}`, title: "T", status, code, detail },
});

/** Runs an agent in a process of its own. Returns how it ended and what it wrote. */
export function runAgent(code, environment) {
  const script = `import * as hansei from "@hansei/client/recording"; const { trace } = hansei; ${code}`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    cwd: new URL("..", import.meta.url),
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  child.stdout.on("data", (data) => (output += data));
  child.stderr.on("data", (data) => (output += data));
  const ended = new Promise((resolve) =>
    child.on("close", (status, signal) => resolve({ status, signal, output })),
  );
  return { child, ended };
}
