import { HanseiError } from "./errors.js";
import type {
  Arguments,
  CallOptions,
  Item,
  ListPath,
  Method,
  Operation,
  PathOf,
  RequestOptions,
  Result,
} from "./operations.js";
import type { components } from "./schema.js";
import { fillPath, parseObject, sleep, Transport, type HanseiOptions } from "./transport.js";

type Schemas = components["schemas"];
type Query<P extends PathOf<"get">> = NonNullable<RequestOptions<Operation<"get", P>>["query"]>;
type ListOptions = Pick<CallOptions, "signal">;

export type AgentRun = Schemas["AgentRun"];
export type Run = Schemas["Run"];
export type TraceReceipt = Schemas["TraceReceipt"];
export type CreateTrace = Schemas["CreateTraceRequest"];

/** One event of an agent run. `id` is its number, from 1. */
export interface AgentEvent {
  id: number;
  event: string;
  data: Record<string, unknown>;
}

const FINISHED_STATES: readonly string[] = ["done", "failed", "dead"];
/** States of an agent run in which nothing happens until a person acts. */
const AGENT_STOPPED_STATES: readonly string[] = ["waiting", "done", "failed", "cancelled"];
const INITIAL_POLL_SECONDS = 0.1;
const MAX_POLL_SECONDS = 2;
/** Requests that change nothing although they are POST. They need no Idempotency-Key. */
const READ_PATH = /\/(search|query|render)$/;

/**
 * The client of a Hansei service.
 *
 * Methods have the names of the operations in openapi.json. `request` and `list` reach the
 * operations without a method of their own. All throw `HanseiError`.
 */
export class Hansei {
  readonly #transport: Transport;

  /** Throws `HanseiError` (`not_configured`) if the URL or the API key is missing or invalid. */
  constructor(options: HanseiOptions = {}) {
    this.#transport = new Transport(options);
  }

  get url(): string {
    return this.#transport.url;
  }

  /** Sends one request: `request("get", "/api/v1/playbooks/{playbook}", { path: { playbook } })`. */
  async request<M extends Method, P extends PathOf<M>>(
    method: M,
    path: P,
    ...[options]: Arguments<Operation<M, P>>
  ): Promise<Result<Operation<M, P>>> {
    return (await this.#send(method, path, (options ?? {}) as AnyOptions)) as Result<Operation<M, P>>;
  }

  /** Yields all items of a list. Fetches the next page when it is needed. */
  async *list<P extends ListPath>(
    path: P,
    ...[options]: Arguments<Operation<"get", P>>
  ): AsyncGenerator<Item<Operation<"get", P>>, void, undefined> {
    const first = (options ?? {}) as AnyOptions;
    let cursor: string | null | undefined;
    do {
      const query = cursor ? { ...first.query, cursor } : first.query;
      const page = (await this.#send("get", path, { ...first, query })) as Partial<{
        items: Item<Operation<"get", P>>[];
        next_cursor: string | null;
      }> | null | undefined;
      if (!Array.isArray(page?.items)) throw this.#transport.unexpected("no page of a list");
      yield* page.items;
      cursor = page.next_cursor;
    } while (cursor);
  }

  // Traces

  /** Stores a trace. By default, Hansei then learns from it. */
  async createTrace(
    trace: CreateTrace,
    { reflect, ...call }: CallOptions & Pick<PostQuery<"/api/v1/traces">, "reflect"> = {},
  ): Promise<TraceReceipt> {
    const options = { body: trace, query: { reflect }, ...call };
    return (await this.#send("post", "/api/v1/traces", options)) as TraceReceipt;
  }

  /** Appends events to an open trace (`state: "open"`). */
  appendEvents(
    traceId: string,
    events: Schemas["AppendEventsRequest"]["events"],
    call?: CallOptions,
  ) {
    const path = { trace_id: traceId };
    return this.request("post", "/api/v1/traces/{trace_id}/events", {
      path,
      body: { events },
      ...call,
    });
  }

  closeTrace(traceId: string, body: Schemas["CloseTraceRequest"] = {}, call?: CallOptions) {
    const path = { trace_id: traceId };
    return this.request("post", "/api/v1/traces/{trace_id}/close", { path, body, ...call });
  }

  /** States the outcome of a stored trace. Hansei learns from the trace again. */
  recordOutcome(
    traceId: string,
    outcome: Schemas["RecordOutcomeRequest"]["outcome"],
    fields: Omit<Schemas["RecordOutcomeRequest"], "outcome"> = {},
    call?: CallOptions,
  ) {
    const options = { path: { trace_id: traceId }, body: { outcome, ...fields }, ...call };
    return this.request("post", "/api/v1/traces/{trace_id}/outcome", options);
  }

  getTrace(traceId: string, call?: CallOptions) {
    return this.request("get", "/api/v1/traces/{trace_id}", { path: { trace_id: traceId }, ...call });
  }

  listTraces(query: Query<"/api/v1/traces"> = {}, call?: ListOptions) {
    return this.list("/api/v1/traces", { query, ...call });
  }

  listTraceEvents(traceId: string, call?: ListOptions) {
    const path = { trace_id: traceId };
    return this.list("/api/v1/traces/{trace_id}/events", { path, ...call });
  }

  // Playbooks

  listPlaybooks(query: Query<"/api/v1/playbooks"> = {}, call?: ListOptions) {
    return this.list("/api/v1/playbooks", { query, ...call });
  }

  /** Returns the bullets that match a task as text for the prompt of an agent. */
  renderPlaybook(
    playbook: string,
    body: Schemas["RenderPlaybookRequest"] = {},
    call?: CallOptions,
  ) {
    const options = { path: { playbook }, body, ...call };
    return this.request("post", "/api/v1/playbooks/{playbook}/render", options);
  }

  listBullets(
    playbook: string,
    query: Query<"/api/v1/playbooks/{playbook}/bullets"> = {},
    call?: ListOptions,
  ) {
    return this.list("/api/v1/playbooks/{playbook}/bullets", { path: { playbook }, query, ...call });
  }

  createBullet(playbook: string, body: Schemas["CreateBulletRequest"], call?: CallOptions) {
    return this.request("post", "/api/v1/playbooks/{playbook}/bullets", {
      path: { playbook },
      body,
      ...call,
    });
  }

  /** Records whether a bullet was helpful or harmful. */
  recordVerdict(
    playbook: string,
    key: string,
    body: Schemas["RecordVerdictRequest"],
    call?: CallOptions,
  ) {
    const options = { path: { playbook, key }, body, ...call };
    return this.request("post", "/api/v1/playbooks/{playbook}/bullets/{key}/verdicts", options);
  }

  listVerdicts(playbook: string, key: string, call?: ListOptions) {
    const path = { playbook, key };
    return this.list("/api/v1/playbooks/{playbook}/bullets/{key}/verdicts", { path, ...call });
  }

  // Search

  searchBullets(
    playbook: string,
    queryText: string,
    fields: Omit<Schemas["SearchBulletsRequest"], "query_text"> = {},
    call?: CallOptions,
  ) {
    const options = { path: { playbook }, body: { query_text: queryText, ...fields }, ...call };
    return this.request("post", "/api/v1/playbooks/{playbook}/search", options);
  }

  searchMemories(
    queryText: string,
    fields: Omit<Schemas["SearchMemoriesRequest"], "query_text"> = {},
    call?: CallOptions,
  ) {
    const body = { query_text: queryText, ...fields };
    return this.request("post", "/api/v1/search", { body, ...call });
  }

  // Runs of the pipeline

  getRun(runId: string, call?: CallOptions) {
    return this.request("get", "/api/v1/runs/{run_id}", { path: { run_id: runId }, ...call });
  }

  /** Waits until a run is done, failed or dead. Throws `timed_out` after `timeoutSeconds`. */
  async waitForRun(
    runId: string,
    { timeoutSeconds = Infinity, signal }: ListOptions & { timeoutSeconds?: number } = {},
  ): Promise<Run> {
    const deadline = Date.now() + timeoutSeconds * 1000;
    let pause = INITIAL_POLL_SECONDS;
    for (;;) {
      const run = await this.getRun(runId, { signal });
      if (FINISHED_STATES.includes(run.state)) return run;
      if (Date.now() + pause * 1000 > deadline) {
        const message = `Run ${runId} is still ${run.state} after ${timeoutSeconds} s.`;
        throw new HanseiError(message, { code: "timed_out" });
      }
      await sleep(pause, signal);
      pause = Math.min(pause * 1.5, MAX_POLL_SECONDS);
    }
  }

  // Runs of the agent (GRACE)

  /** Asks the agent. The run is queued; follow it with `followAgentRun`. */
  createAgentRun(
    query: string,
    fields: Omit<Schemas["CreateAgentRunRequest"], "query"> = {},
    call?: CallOptions,
  ) {
    return this.request("post", "/api/v1/agents/runs", { body: { query, ...fields }, ...call });
  }

  getAgentRun(agentRunId: string, call?: CallOptions) {
    const path = { agent_run_id: agentRunId };
    return this.request("get", "/api/v1/agents/runs/{agent_run_id}", { path, ...call });
  }

  listAgentRuns(query: Query<"/api/v1/agents/runs"> = {}, call?: ListOptions) {
    return this.list("/api/v1/agents/runs", { query, ...call });
  }

  /**
   * Yields the events of an agent run after the number `after`, until the run has ended or waits
   * for a person. Each request ends with the next events, so a lost connection loses none.
   */
  async *followAgentRun(
    agentRunId: string,
    { after = 0, signal }: ListOptions & { after?: number } = {},
  ): AsyncGenerator<AgentEvent, void, undefined> {
    const path = { agent_run_id: agentRunId };
    for (;;) {
      const text = await this.request("get", "/api/v1/agents/runs/{agent_run_id}/events", {
        path,
        query: { follow: false },
        headers: { Accept: "text/event-stream", "Last-Event-ID": String(after) },
        signal,
      });
      const events = parseEvents(text ?? "");
      if (events === undefined) throw this.#transport.unexpected("no stream of events");
      for (const event of events) {
        if (!(event.id > after)) throw this.#transport.unexpected("an event out of order");
        after = event.id;
        yield event;
      }
      if (!text) {
        const run = await this.getAgentRun(agentRunId, { signal });
        if (AGENT_STOPPED_STATES.includes(run.state)) return;
      }
    }
  }

  /** Answers the open question of an agent run, which then goes on. */
  answerIntervention(
    agentRunId: string,
    interventionId: string,
    body: Schemas["AnswerInterventionRequest"],
    call?: CallOptions,
  ) {
    return this.request(
      "post",
      "/api/v1/agents/runs/{agent_run_id}/interventions/{intervention_id}/answer",
      { path: { agent_run_id: agentRunId, intervention_id: interventionId }, body, ...call },
    );
  }

  cancelAgentRun(agentRunId: string, call?: CallOptions) {
    const path = { agent_run_id: agentRunId };
    return this.request("post", "/api/v1/agents/runs/{agent_run_id}/cancel", { path, ...call });
  }

  /** Records whether the answer was right. */
  recordAgentFeedback(
    agentRunId: string,
    body: Schemas["RecordAgentFeedbackRequest"],
    call?: CallOptions,
  ) {
    const path = { agent_run_id: agentRunId };
    return this.request("post", "/api/v1/agents/runs/{agent_run_id}/feedback", {
      path,
      body,
      ...call,
    });
  }

  async #send(method: Method, path: string, options: AnyOptions): Promise<unknown> {
    const reads = method === "get" || (method === "post" && READ_PATH.test(path));
    return this.#transport.send({
      method,
      path: fillPath(path, options.path),
      query: options.query,
      body: options.body,
      headers: options.headers,
      idempotencyKey: options.idempotencyKey ?? (reads ? undefined : crypto.randomUUID()),
      signal: options.signal,
    });
  }
}

type PostQuery<P extends PathOf<"post">> = NonNullable<RequestOptions<Operation<"post", P>>["query"]>;
type AnyOptions = CallOptions & {
  path?: Record<string, unknown> | undefined;
  query?: Record<string, unknown> | undefined;
  body?: unknown;
};

/** The events of a stream of server-sent events; undefined if the text is something else. */
function parseEvents(text: unknown): AgentEvent[] | undefined {
  if (typeof text !== "string") return undefined;
  const events: AgentEvent[] = [];
  for (const block of text.split("\n\n")) {
    const fields = new Map(
      block.split("\n").map((line) => {
        const colon = line.indexOf(": ");
        return [line.slice(0, colon), line.slice(colon + 2)] as const;
      }),
    );
    const data = fields.get("data");
    if (data === undefined) continue;
    const parsed = parseObject(data);
    if (parsed === undefined) return undefined;
    events.push({
      id: Number(fields.get("id")),
      event: fields.get("event") ?? "message",
      data: parsed,
    });
  }
  return events;
}
