import { HanseiError, type HanseiErrorDetails, type Problem } from "./errors.js";

export const INITIAL_PAUSE_SECONDS = 0.2;
/** A longer `Retry-After` throws the error instead of waiting. */
export const MAX_PAUSE_SECONDS = 10;

export interface HanseiOptions {
  /** Default: the environment variable HANSEI_URL. */
  url?: string | undefined;
  /** Default: the environment variable HANSEI_API_KEY. */
  apiKey?: string | undefined;
  /** How long a response may take. Default: 60 seconds. */
  timeoutSeconds?: number | undefined;
  /** Retries of a request that fails in a way that may pass. Default: 4. */
  maxRetries?: number | undefined;
  /** Replaces the global `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
}

export interface HttpRequest {
  method: string;
  path: string;
  query?: Record<string, unknown> | undefined;
  body?: unknown;
  headers?: Record<string, string> | undefined;
  idempotencyKey?: string | undefined;
  signal?: AbortSignal | undefined;
}

/** Sends requests, with retries. */
export class Transport {
  readonly url: string;
  readonly #apiKey: string | undefined;
  readonly #timeoutSeconds: number;
  readonly #maxRetries: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: HanseiOptions) {
    this.url = parseUrl(options.url ?? environment("HANSEI_URL"));
    this.#apiKey = parseKey(options.apiKey ?? environment("HANSEI_API_KEY"));
    this.#timeoutSeconds = options.timeoutSeconds ?? 60;
    this.#maxRetries = options.maxRetries ?? 4;
    this.#fetch = options.fetch ?? globalThis.fetch;
    if (!(this.#timeoutSeconds > 0)) {
      throw new HanseiError("`timeoutSeconds` must be positive.", { code: "not_configured" });
    }
  }

  async send(request: HttpRequest): Promise<unknown> {
    const url = this.url + request.path + queryString(request.query);
    const init = this.#init(request);
    let pause = INITIAL_PAUSE_SECONDS;
    for (let retriesLeft = this.#maxRetries; ; retriesLeft--) {
      try {
        return await this.#attempt(url, init, request.signal);
      } catch (error) {
        if (!(error instanceof HanseiError) || !isTransient(error) || retriesLeft <= 0) throw error;
        const seconds = error.retryAfter ?? pause;
        if (seconds > MAX_PAUSE_SECONDS) throw error;
        await sleep(seconds * (1 + Math.random() * 0.2), request.signal);
        pause *= 2;
      }
    }
  }

  #init(request: HttpRequest): RequestInit {
    const headers: Record<string, string> = {
      Accept: "application/json",
      Prefer: `wait=${Math.max(1, Math.floor(this.#timeoutSeconds))}`,
    };
    if (this.#apiKey !== undefined) headers["Authorization"] = `Bearer ${this.#apiKey}`;
    if (request.idempotencyKey !== undefined) headers["Idempotency-Key"] = request.idempotencyKey;
    if (request.body !== undefined) headers["Content-Type"] = "application/json";
    return {
      method: request.method.toUpperCase(),
      headers: { ...headers, ...request.headers },
      redirect: "manual",
      ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
    };
  }

  async #attempt(url: string, init: RequestInit, signal?: AbortSignal): Promise<unknown> {
    const timeout = AbortSignal.timeout(this.#timeoutSeconds * 1000);
    let response: Response;
    let text: string;
    try {
      const either = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
      response = await this.#fetch(url, { ...init, signal: either });
      text = await response.text();
    } catch (cause) {
      signal?.throwIfAborted();
      if (timeout.aborted) {
        const code = "timed_out";
        throw new HanseiError(`${this.url} did not respond in time.`, { code, cause });
      }
      const code = "unreachable";
      throw new HanseiError(`${this.url} cannot be reached (${reason(cause)}).`, { code, cause });
    }
    if (!response.ok) throw this.#responseError(response, text);
    if (!isJson(response)) {
      if (text === "") return undefined;
      if (response.headers.get("content-type")?.includes("html")) throw this.#unexpected(response);
      return text;
    }
    const value = parseObject(text);
    if (value === undefined) throw this.#unexpected(response);
    return value;
  }

  #responseError(response: Response, text: string): HanseiError {
    const problem = parseProblem(response, text);
    if (problem === undefined) return this.#unexpected(response);
    const keyMissing = response.status === 401 && this.#apiKey === undefined;
    const message = keyMissing
      ? `No API key for ${this.url}. Set HANSEI_API_KEY or \`apiKey\`.`
      : problem.detail;
    return new HanseiError(message, {
      code: problem.code,
      status: response.status,
      problem,
      retryAfter: parseRetryAfter(response),
      requestId: response.headers.get("x-request-id") ?? undefined,
    });
  }

  #unexpected(response: Response): HanseiError {
    const { status } = response;
    return this.unexpected(String(status), { status, retryAfter: parseRetryAfter(response) });
  }

  /** The error for a response that is not from Hansei; `what` names what was returned. */
  unexpected(what: string, details: Partial<HanseiErrorDetails> = {}): HanseiError {
    return new HanseiError(
      `${this.url} returned ${what}, which is not a Hansei response. Check the URL.`,
      { ...details, code: "unexpected_response" },
    );
  }
}

/** A path whose `{names}` are replaced by escaped values. */
export function fillPath(template: string, values: Record<string, unknown> = {}): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(values[name] ?? "");
    // URL parsers resolve "." and ".." even if they are escaped.
    if (value === "" || value === "." || value === ".." || !isWellFormed(value)) {
      const message = `\`${name}\` must not be ${JSON.stringify(value)}.`;
      throw new HanseiError(message, { code: "invalid_argument" });
    }
    return encodeURIComponent(value);
  });
}

export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A timeout is not transient: the service may still be working. */
function isTransient(error: HanseiError): boolean {
  return (
    error.code === "unreachable" ||
    error.code === "in_progress" || // an earlier attempt whose response was lost
    error.status === 429 ||
    error.status === 503
  );
}

function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}

function parseUrl(text: string | undefined): string {
  const code = "not_configured";
  if (text === undefined) throw new HanseiError("No URL. Set HANSEI_URL or `url`.", { code });
  let url: URL;
  try {
    url = new URL(text);
  } catch (cause) {
    throw new HanseiError(`'${text}' is not a valid URL.`, { code, cause });
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new HanseiError(`'${text}' is not an http or https URL.`, { code });
  }
  return (url.origin + url.pathname).replace(/\/+$/, "");
}

function parseKey(text: string | undefined): string | undefined {
  const key = text?.trim();
  if (key !== undefined && !/^[\x21-\x7e]*$/.test(key)) {
    throw new HanseiError("The API key contains invalid characters.", { code: "not_configured" });
  }
  return key || undefined;
}

/** A list repeats its name. Null and undefined are omitted. */
function queryString(values: Record<string, unknown> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null) query.append(name, String(item));
    }
  }
  return query.size > 0 ? `?${query}` : "";
}

function isJson(response: Response): boolean {
  return /[/+]json/.test(response.headers.get("content-type") ?? "");
}

function parseProblem(response: Response, text: string): Problem | undefined {
  const value = isJson(response) ? parseObject(text) : undefined;
  const { code, detail } = (value ?? {}) as Partial<Problem>;
  return typeof code === "string" && typeof detail === "string" ? (value as Problem) : undefined;
}

/** The JSON object of a text; undefined if it is something else. */
export function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** Seconds. The header holds a number or a date. */
function parseRetryAfter(response: Response): number | undefined {
  const text = response.headers.get("retry-after");
  if (!text) return undefined;
  const seconds = Number(text);
  if (Number.isFinite(seconds)) return Math.max(0, seconds);
  const time = Date.parse(text);
  return Number.isNaN(time) ? undefined : Math.max(0, (time - Date.now()) / 1000);
}

function isWellFormed(text: string): boolean {
  return !/[\ud800-\udfff]/u.test(text);
}

function reason(error: unknown): string {
  const inner = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return inner instanceof Error ? inner.message || inner.name : String(inner);
}
