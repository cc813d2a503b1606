import type { components } from "./schema.js";

/** An error of the service (RFC 9457). Some codes add members. */
export type Problem = components["schemas"]["Problem"] & Record<string, unknown>;
export type FieldError = components["schemas"]["FieldError"];

export interface HanseiErrorDetails {
  code: string;
  status?: number | undefined;
  problem?: Problem | undefined;
  retryAfter?: number | undefined;
  requestId?: string | undefined;
  cause?: unknown;
}

/**
 * Every failed request throws this error. `message` describes it in one sentence.
 *
 * `code` is stable. It is the code of the problem, or one of the client:
 * `not_configured`, `invalid_argument`, `unreachable`, `timed_out`, `unexpected_response`.
 */
export class HanseiError extends Error {
  override readonly name = "HanseiError";
  readonly code: string;
  /** The HTTP status. Undefined without a response. */
  readonly status: number | undefined;
  /** The whole problem document. Undefined if the response was not one. */
  readonly problem: Problem | undefined;
  /** In seconds. */
  readonly retryAfter: number | undefined;
  readonly requestId: string | undefined;

  constructor(message: string, details: HanseiErrorDetails) {
    super(message, { cause: details.cause });
    this.code = details.code;
    this.status = details.status;
    this.problem = details.problem;
    this.retryAfter = details.retryAfter;
    this.requestId = details.requestId;
  }

  /** The invalid fields. */
  get errors(): readonly FieldError[] {
    const errors: unknown = this.problem?.errors;
    return Array.isArray(errors) ? (errors as FieldError[]) : [];
  }
}
