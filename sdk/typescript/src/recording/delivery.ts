// Sends recorded traces. Sending one again is harmless: its `external_id` identifies it.
import type { CreateTrace, Hansei } from "../client.js";
import type { HanseiError } from "../errors.js";
import type { components } from "../schema.js";
import { parseObject } from "../transport.js";
import { describeError } from "./encoding.js";
import { warn } from "./log.js";
import type { Spool } from "./spool.js";

export type ReflectMode = components["schemas"]["ReflectMode"];
type Event = components["schemas"]["Event"];

/** A larger trace is sent in several requests. */
const MAX_REQUEST_CHARACTERS = 4 * 1024 * 1024;
const MAX_REQUEST_EVENTS = 5_000;
/** Events of one trace that the service accepts. */
const MAX_EVENTS = 20_000;
/** Attempts at a trace that the service fails to store. */
const MAX_ATTEMPTS = 5;
const INITIAL_PAUSE_SECONDS = 0.5;
const MAX_PAUSE_SECONDS = 30;
/** A longer `Retry-After` is shortened: a proxy may have sent it. */
const MAX_RETRY_AFTER_SECONDS = 300;
const REFUSALS: readonly (number | undefined)[] = [400, 409, 413, 422];

export class Delivery {
  readonly #client: Hansei;
  readonly #spool: Spool;
  /** Attempts at the trace that is sent now. */
  #attempts = 0;
  #pause = INITIAL_PAUSE_SECONDS;
  #lastProblem: string | undefined;
  #refusedCount = 0;
  #sending: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: Hansei, spool: Spool) {
    this.#client = client;
    this.#spool = spool;
  }

  /** Sends what has ended, in the background. After a failure, waits for the next attempt. */
  start(): void {
    if (this.#timer !== undefined || this.#spool.readyCount === 0) return;
    this.#sending ??= this.#sendAll().finally(() => (this.#sending = undefined));
  }

  /**
   * Waits until all traces that have ended are sent, or the time is over. Returns how many are not
   * delivered: those that wait, and those that were refused since the last call.
   */
  async flush(timeoutSeconds: number): Promise<number> {
    const deadline = performance.now() + timeoutSeconds * 1000;
    const left = () => deadline - performance.now();
    this.#spool.adopt();
    while (this.#spool.readyCount > 0 && left() > 0) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      this.start();
      await within(left(), this.#sending);
      if (this.#timer !== undefined) await within(Math.min(this.#pause * 1000, left()));
    }
    const count = this.#spool.readyCount + this.#refusedCount;
    this.#refusedCount = 0;
    return count;
  }

  async #sendAll(): Promise<void> {
    for (let name = this.#spool.next; name !== undefined; name = this.#spool.next) {
      try {
        await this.#send(name);
        this.#attempts = 0;
        this.#spool.remove(name);
        this.#pause = INITIAL_PAUSE_SECONDS;
        this.#lastProblem = undefined;
      } catch (error) {
        if (!this.#isRefused(error)) return this.#wait(error);
        this.#attempts = 0;
        this.#refusedCount += 1;
        warn(`The service refuses a recorded trace: ${describeError(error)}`);
        this.#spool.reject(name, describeError(error));
      }
    }
  }

  #isRefused(error: unknown): boolean {
    const { status, code } = error as Partial<HanseiError>;
    if (status === 500) return ++this.#attempts >= MAX_ATTEMPTS;
    if (code === "unexpected_response") return status === 413; // a proxy's page
    return code !== "in_progress" && REFUSALS.includes(status);
  }

  #wait(error: unknown): void {
    const { code, retryAfter } = error as Partial<HanseiError>;
    if (code !== this.#lastProblem) {
      warn(`Traces are not sent yet. Hansei retries. ${describeError(error)}`);
    }
    this.#lastProblem = code;
    const seconds = Math.min(retryAfter ?? this.#pause, MAX_RETRY_AFTER_SECONDS);
    this.#pause = Math.min(this.#pause * 2, MAX_PAUSE_SECONDS);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.start();
    }, seconds * 1000);
    this.#timer.unref(); // does not keep the process alive: the next one sends the rest
  }

  async #send(name: string): Promise<void> {
    const text = this.#spool.read(name);
    if (text === "") return; // somebody deleted the file
    const { fields, events, reflect } = parseRun(text);
    if (text.length <= MAX_REQUEST_CHARACTERS && events.length <= MAX_REQUEST_EVENTS) {
      await this.#client.createTrace({ ...fields, events }, { reflect });
      return;
    }
    // In parts. The service counts the events that it has, so an interrupted attempt continues.
    const { outcome = null, error = null, ...rest } = fields;
    const { trace_id } = await this.#client.createTrace({ ...rest, state: "open" });
    const stored = await this.#client.getTrace(trace_id);
    if (stored.state !== "open") return;
    for (const part of parts(events.slice(stored.event_count, MAX_EVENTS))) {
      await this.#client.appendEvents(trace_id, part);
    }
    await this.#client.closeTrace(trace_id, { outcome, error, reflect });
  }
}

/** Reads the lines of a spool. Skips lines that were cut when the process ended. */
export function parseRun(text: string): {
  fields: CreateTrace;
  events: Event[];
  reflect: ReflectMode;
} {
  let fields: Record<string, unknown> = {};
  const events: Event[] = [];
  for (const line of text.split("\n")) {
    const value = parseObject(line.slice(1));
    if (value === undefined) continue;
    if (line.startsWith("E")) events.push(value as unknown as Event);
    if (line.startsWith("T")) {
      const metadata = { ...(fields["metadata"] as object), ...(value["metadata"] as object) };
      fields = { ...fields, ...value, metadata };
    }
  }
  if (events.length === 0) {
    const content = "The agent run recorded no events.";
    events.push({ event_type: "system_event", content } as Event);
  }
  const { _reflect = "auto", ...rest } = fields;
  return { fields: rest as CreateTrace, events, reflect: _reflect as ReflectMode };
}

function* parts(events: Event[]): Generator<Event[]> {
  let part: Event[] = [];
  let size = 0;
  for (const event of events) {
    const { length } = JSON.stringify(event);
    if (part.length === 1_000 || (part.length > 0 && size + length > MAX_REQUEST_CHARACTERS)) {
      yield part;
      part = [];
      size = 0;
    }
    part.push(event);
    size += length;
  }
  if (part.length > 0) yield part;
}

/** Waits for the promise, but no longer. */
async function within(milliseconds: number, promise = new Promise<void>(() => {})): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<void>((resolve) => (timer = setTimeout(resolve, milliseconds)));
  await Promise.race([promise, timeout]);
  clearTimeout(timer);
}
