// Records one agent run: `await trace("refund an order", { playbook: "support" }, async (t) => …)`.
import { AsyncLocalStorage } from "node:async_hooks";
import type { CreateTrace } from "../client.js";
import type { components } from "../schema.js";
import type { RenderRequest } from "./advice.js";
import type { ReflectMode } from "./delivery.js";
import { describeError, MAX_CONTENT_CHARACTERS, toText } from "./encoding.js";
import { defaultRecorder, type Recorder } from "./recorder.js";

type Schemas = components["schemas"];
export type EventType = Schemas["EventType"];
export type Outcome = Schemas["OutcomeType"];

type Camel<S extends string> = S extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<Camel<Rest>>}`
  : S;
type CamelFields<T, Names extends keyof T & string> = { [N in Names as Camel<N>]?: T[N] | undefined };

const TRACE_FIELDS = [
  "project_id", "task_key", "playbook", "parent_id", "session_id", "language", "task_goal", "query",
  "generated_answer", "reasoning_steps", "outcome", "error", "ground_truth", "match", "test_report",
  "used_bullet_keys", "retrieval_id", "tools", "related_memory_ids", "metadata",
] as const satisfies (keyof CreateTrace)[];
const RENDER_OPTIONS = [
  "project_id", "token_budget", "top_k", "sections", "format", "min_match", "holdout_share",
  "session_id", "include_trials",
] as const satisfies (keyof RenderRequest)[];
const EVENT_TYPES: Record<EventType, true> = {
  tool_call: true, tool_response: true, llm_call: true, llm_response: true, user_message: true,
  system_event: true, error_event: true,
};
const OUTCOMES: Record<Outcome, true> = {
  success: true, failure: true, partial: true, timeout: true, error: true,
};

/** Fields of a trace. Put your own data into `metadata`. */
export type TraceFields = CamelFields<CreateTrace, (typeof TRACE_FIELDS)[number]>;
export type RenderOptions = CamelFields<RenderRequest, (typeof RENDER_OPTIONS)[number]>;

export interface TraceOptions extends TraceFields {
  /** Your ID of this one run. Default: a new one. */
  externalId?: string | undefined;
  /** Whether Hansei reflects on the run. Default: `auto`. */
  reflect?: ReflectMode | undefined;
  recorder?: Recorder | undefined;
}

export interface EventOptions {
  toolName?: string | undefined;
  error?: Record<string, unknown> | undefined;
  agent?: string | undefined;
  metadata?: Record<string, unknown> | undefined;
}

/**
 * A trace that is being recorded. No method throws because of the service or waits for it, except
 * `render`, which waits up to one second. A wrong argument is a `TypeError`.
 */
export class RecordedTrace {
  readonly externalId: string;
  readonly task: string;
  readonly #name = `sdk-${crypto.randomUUID().replaceAll("-", "")}`;
  readonly #recorder: Recorder | undefined;
  readonly #isRecorded: boolean;
  readonly #fields: TraceFields = {};
  #callCount = 0;
  #hasEnded = false;

  /** @internal */
  constructor(task: string, options: TraceOptions) {
    const { recorder = defaultRecorder(), externalId, reflect = "auto", ...fields } = options;
    const wire = toWire("A trace", TRACE_FIELDS, fields);
    checkOutcome(fields.outcome);
    this.task = toText(task);
    this.externalId = externalId ?? this.#name;
    this.#recorder = recorder;
    this.#isRecorded = recorder?.isSampled() ?? false;
    Object.assign(this.#fields, fields);
    const named = { task_description: this.task, external_id: this.externalId, _reflect: reflect };
    this.#add({ ...named, ...wire });
  }

  /** Records an event of any type (docs/events.md). */
  event(type: EventType, content: unknown = "", options: EventOptions = {}): void {
    if (!(type in EVENT_TYPES)) throw new TypeError(unknownName("event type", type, EVENT_TYPES));
    const recorder = this.#recorder;
    if (recorder === undefined || !this.#takesMore()) return;
    const { toolName, error, agent, metadata } = options;
    const text = recorder.maskText(toText(content));
    const cut = text.length - MAX_CONTENT_CHARACTERS;
    const more = cut > 0 ? { ...metadata, truncated_characters: cut } : metadata;
    recorder.add(this.#name, "E", {
      event_type: type,
      content: text.slice(0, MAX_CONTENT_CHARACTERS),
      timestamp: new Date().toISOString(),
      ...(toolName && { tool_name: toolName.slice(0, 128) }),
      ...(error && { error: recorder.maskFields(error) }),
      ...(agent && { agent: agent.slice(0, 128) }),
      ...(more && { metadata: recorder.maskFields(more) }),
    });
  }

  /** Records an error that is no result of a tool. */
  error(error: unknown, options: EventOptions = {}): void {
    const message = describeError(error);
    this.event("error_event", message, { error: { message }, ...options });
  }

  /** The function, with each call recorded: its arguments, and its result or error. */
  tool<A extends unknown[], R>(name: string, run: (...args: A) => R): (...args: A) => R {
    return (...args) => {
      const { given, callId = `call-${++this.#callCount}` } = toolInput(args);
      const options = { toolName: name, metadata: { call_id: callId } };
      this.event("tool_call", given, options);
      const succeed = (result: unknown) => this.event("tool_response", result, options);
      const fail = (error: unknown): never => {
        const message = describeError(error);
        this.event("tool_response", message, { ...options, error: { message } });
        throw error;
      };
      let result: R;
      try {
        result = run(...args);
      } catch (error) {
        return fail(error);
      }
      if (!isPromise(result)) {
        succeed(result);
        return result;
      }
      return result.then((value) => (succeed(value), value), fail) as R;
    };
  }

  /** Sets fields of the trace, such as `generatedAnswer` or `groundTruth`. */
  update(fields: TraceFields): void {
    const wire = toWire("A trace", TRACE_FIELDS, fields);
    checkOutcome(fields.outcome);
    Object.assign(this.#fields, fields);
    this.#add(wire);
  }

  /** States how the agent run ended. Null takes a statement back. */
  outcome(outcome: Outcome | null, error?: unknown): void {
    const message = { error_message: describeError(error) };
    this.update({ outcome, ...(error !== undefined && { error: message }) });
  }

  /**
   * The prompt block of the playbook for the task, or for `query`. "" without a playbook and before
   * it has learned anything. If the service does not respond within a second, the last block that
   * this process got. The trace gets its `retrieval_id`.
   */
  async render(query?: string, options: RenderOptions = {}): Promise<string> {
    const wire = toWire("`render`", RENDER_OPTIONS, options);
    const { playbook, projectId, sessionId } = this.#fields;
    if (this.#recorder === undefined || !playbook) return "";
    const { text, retrievalId } = await this.#recorder.advice.render(playbook, {
      query_text: query ?? this.task,
      project_id: projectId ?? null,
      session_id: sessionId ?? this.externalId,
      ...wire,
    } as RenderRequest);
    if (retrievalId !== undefined) this.update({ retrievalId });
    return text;
  }

  /** @internal */
  end(failure?: { error: unknown }): void {
    if (failure !== undefined) this.#recordFailure(failure.error);
    if (this.#takesMore()) this.#recorder?.finish(this.#name);
    this.#hasEnded = true;
  }

  #recordFailure(error: unknown): void {
    const name = error instanceof Error ? error.name : "Error";
    if (name === "AbortError") return this.update({ metadata: { stopped_by: name } });
    this.error(error);
    if (this.#fields.outcome) return;
    this.update({
      outcome: name === "TimeoutError" ? "timeout" : "error",
      error: { error_message: describeError(error), context: { exception: name } },
    });
  }

  #add(fields: Record<string, unknown>): void {
    const recorder = this.#recorder;
    if (recorder && this.#takesMore()) recorder.add(this.#name, "T", recorder.maskFields(fields));
  }

  #takesMore(): boolean {
    return this.#isRecorded && !this.#hasEnded;
  }
}

const storage = new AsyncLocalStorage<RecordedTrace>();

/** The trace of the innermost `trace` in which this code runs. */
export function currentTrace(): RecordedTrace | undefined {
  return storage.getStore();
}

/**
 * Runs a function and records it as a trace, which is sent in the background when it ends.
 *
 * The outcome is what `outcome` states. Without a statement, an error that leaves the function is
 * the outcome `error`, a `TimeoutError` is `timeout`, and a function that ends normally has none.
 * Without a configured service, nothing is recorded and the function runs as usual.
 */
export async function trace<T>(
  task: string,
  options: TraceOptions,
  run: (t: RecordedTrace) => T | Promise<T>,
): Promise<T> {
  const outer = currentTrace();
  const parent = outer && { metadata: { parent_external_id: outer.externalId, ...options.metadata } };
  const recorded = new RecordedTrace(task, { ...options, ...parent });
  return storage.run(recorded, async () => {
    try {
      const result = await run(recorded);
      recorded.end();
      return result;
    } catch (error) {
      recorded.end({ error });
      throw error;
    }
  });
}

/** `RecordedTrace.tool` of the trace in which it is called. Outside of one, the function just runs. */
export function tool<A extends unknown[], R>(name: string, run: (...args: A) => R): (...args: A) => R {
  return (...args) => (currentTrace()?.tool(name, run) ?? run)(...args);
}

/** The prompt block of a playbook, as `RecordedTrace.render`, outside of a trace. Never rejects. */
export async function render(
  playbook: string,
  query = "",
  options: RenderOptions & { recorder?: Recorder | undefined } = {},
): Promise<string> {
  const { recorder = defaultRecorder(), ...rest } = options;
  const wire = toWire("`render`", RENDER_OPTIONS, rest);
  const block = await recorder?.advice.render(playbook, { query_text: query, ...wire });
  return block?.text ?? "";
}

/** The fields under their names in the API. Throws `TypeError` for a name that is unknown. */
function toWire(what: string, known: readonly string[], fields: object): Record<string, unknown> {
  const wire: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    const wireName = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (!known.includes(wireName)) throw new TypeError(`${what} has no field \`${name}\`.`);
    if (value !== undefined) wire[wireName] = value;
  }
  return wire;
}

function checkOutcome(outcome: Outcome | null | undefined): void {
  if (outcome && !(outcome in OUTCOMES)) {
    throw new TypeError(unknownName("outcome", outcome, OUTCOMES));
  }
}

function unknownName(what: string, name: unknown, known: object): string {
  return `The ${what} must be one of ${Object.keys(known).join(", ")}, not '${name}'.`;
}

/** The AI SDK calls a tool with its input and `{ toolCallId, messages, … }`. */
function toolInput(args: unknown[]): { given: unknown; callId?: string } {
  const [first, second] = args;
  const callId = (second as { toolCallId?: unknown } | null | undefined)?.toolCallId;
  if (typeof callId === "string") return { given: first, callId };
  return { given: args.length === 1 ? first : args };
}

function isPromise<R>(value: R): value is R & Promise<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}
