// The settings, the spool and the delivery of one service and API key.
import { Hansei } from "../client.js";
import { Advice } from "./advice.js";
import { Delivery } from "./delivery.js";
import { describeError, toJson } from "./encoding.js";
import { warn } from "./log.js";
import { Spool, spoolFolder } from "./spool.js";

const SEND_TIMEOUT_SECONDS = 30;
const MASK_FAILED = "[not recorded: the mask failed]";
/** Fields of a trace that a mask leaves alone. */
const IDENTIFIERS: readonly string[] = [
  "external_id", "playbook", "project_id", "task_key", "session_id", "retrieval_id", "outcome",
  "match", "_reflect",
];

export interface RecorderOptions {
  /** Default: the environment variable HANSEI_URL. */
  url?: string | undefined;
  /** Default: the environment variable HANSEI_API_KEY. */
  apiKey?: string | undefined;
  /** Default: HANSEI_SPOOL_DIR, then ~/.local/state/hansei/spool. */
  spoolDir?: string | undefined;
  /** The share of agent runs that is recorded, 0 to 1. Default: HANSEI_SAMPLE_RATE, then 1. */
  sampleRate?: number | undefined;
  /** Gets each text before it is recorded and returns what is recorded instead. */
  mask?: ((text: string) => string) | undefined;
  /** How long an agent waits for advice. Default: HANSEI_RENDER_TIMEOUT, then 1. */
  renderTimeoutSeconds?: number | undefined;
}

export class Recorder {
  /** @internal */
  readonly advice: Advice;
  readonly #spool: Spool;
  readonly #delivery: Delivery;
  readonly #sampleRate: number;
  readonly #mask: ((text: string) => string) | undefined;

  /** Throws `HanseiError` without a URL, and `RangeError` for a share outside 0 to 1. */
  constructor(options: RecorderOptions = {}) {
    const { url, apiKey, spoolDir, mask } = options;
    this.#sampleRate = options.sampleRate ?? numberFrom("HANSEI_SAMPLE_RATE", 1, 0, 1);
    if (!(this.#sampleRate >= 0 && this.#sampleRate <= 1)) {
      throw new RangeError(`\`sampleRate\` must be between 0 and 1, not ${this.#sampleRate}.`);
    }
    this.#mask = mask;
    const timeoutSeconds =
      options.renderTimeoutSeconds ?? numberFrom("HANSEI_RENDER_TIMEOUT", 1, 0.001, 60);
    this.advice = new Advice(new Hansei({ url, apiKey, timeoutSeconds, maxRetries: 0 }));
    const sender = new Hansei({ url, apiKey, timeoutSeconds: SEND_TIMEOUT_SECONDS, maxRetries: 0 });
    const key = apiKey ?? process.env["HANSEI_API_KEY"];
    this.#spool = new Spool(spoolFolder(sender.url, key, spoolDir));
    this.#delivery = new Delivery(sender, this.#spool);
    this.#delivery.start(); // what other processes left
    recorders.add(this);
  }

  /**
   * Waits until all traces that have ended are sent, or the time is over. Returns how many are not
   * delivered: those that wait, and those that the service has refused since the last call.
   */
  flush(timeoutSeconds = 10): Promise<number> {
    return this.#delivery.flush(timeoutSeconds);
  }

  /** @internal */
  isSampled(): boolean {
    return this.#sampleRate >= 1 || Math.random() < this.#sampleRate;
  }

  /** @internal Writes a line of a trace to the spool. */
  add(name: string, kind: "T" | "E", fields: Record<string, unknown>): void {
    this.#spool.append(name, kind + toJson(fields));
  }

  /** @internal */
  finish(name: string): void {
    this.#spool.finish(name);
    this.#delivery.start();
  }

  /** @internal */
  maskText(text: string): string {
    if (this.#mask === undefined || text === "") return text;
    try {
      return String(this.#mask(text));
    } catch (error) {
      warn(`The mask failed; the text is not recorded. ${describeError(error)}`);
      return MASK_FAILED;
    }
  }

  /** @internal */
  maskFields(fields: Record<string, unknown>): Record<string, unknown> {
    if (this.#mask === undefined) return fields;
    const plain = JSON.parse(toJson(fields)) as Record<string, unknown>;
    const masked = Object.entries(plain).map(([name, value]) => [
      name,
      IDENTIFIERS.includes(name) ? value : this.#maskValue(value),
    ]);
    return Object.fromEntries(masked) as Record<string, unknown>;
  }

  #maskValue(value: unknown): unknown {
    if (typeof value === "string") return this.maskText(value);
    if (Array.isArray(value)) return value.map((item) => this.#maskValue(item));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, this.#maskValue(v)]));
  }
}

const recorders = new Set<Recorder>();
let current: Recorder | undefined;
let hasWarned = false;

/** Undefined if no service is configured, which is logged once, and if HANSEI_ENABLED is off. */
export function defaultRecorder(): Recorder | undefined {
  if (!isEnabled()) return undefined;
  if (current !== undefined || hasWarned) return current;
  try {
    current = new Recorder();
  } catch (error) {
    hasWarned = true;
    warn(`Agent runs are not recorded. ${describeError(error)}`);
  }
  return current;
}

/**
 * Sets how `trace` and the wrappers record. Call it once, at the start. Throws `HanseiError`
 * without a URL, and `RangeError` for a share outside 0 to 1.
 */
export function configure(options: RecorderOptions): void {
  if (isEnabled()) current = new Recorder(options);
}

/** `Recorder.flush` of all recorders. 0 means that all traces that have ended are delivered. */
export async function flush(timeoutSeconds = 10): Promise<number> {
  const counts = await Promise.all([...recorders].map((each) => each.flush(timeoutSeconds)));
  return counts.reduce((sum, count) => sum + count, 0);
}

/** False if HANSEI_ENABLED is 0, false, no or off: nothing is recorded or rendered. */
function isEnabled(): boolean {
  const text = process.env["HANSEI_ENABLED"] ?? "1";
  return !["0", "false", "no", "off"].includes(text.trim().toLowerCase());
}

function numberFrom(name: string, fallback: number, least: number, most: number): number {
  const text = process.env[name];
  if (!text) return fallback;
  const value = Number(text);
  if (value >= least && value <= most) return value;
  warn(`${name} must be a number between ${least} and ${most}, not '${text}'.`);
  return fallback;
}
