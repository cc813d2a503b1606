// Types of one operation, derived from the generated schema.
import type { paths } from "./schema.js";

export type Method = "get" | "post" | "put" | "patch" | "delete";

/** The paths that have this method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: { responses: unknown } } ? P : never;
}[keyof paths];

export type Operation<M extends Method, P extends PathOf<M>> = paths[P] extends {
  [K in M]: infer O;
}
  ? O
  : never;

type Json<T> = T extends { content: { "application/json": infer B } } ? B : never;
type Optional<K extends string, T> = Record<never, never> extends T
  ? { [N in K]?: T | undefined }
  : { [N in K]: T };

type PathOptions<O> = O extends { parameters: { path: infer T extends object } }
  ? { path: T }
  : { path?: never };
type QueryOptions<O> = O extends { parameters: { query: infer T extends object } }
  ? Optional<"query", T>
  : O extends { parameters: { query?: infer T } }
    ? { query?: T | undefined }
    : { query?: never };
type BodyOptions<O> = O extends { requestBody: infer T }
  ? { body: Json<T> }
  : O extends { requestBody?: infer T }
    ? { body?: Json<NonNullable<T>> | undefined }
    : { body?: never };

/** What any request may have. */
export interface CallOptions {
  /** Cancels the request. The promise is then rejected with the reason of the signal. */
  signal?: AbortSignal | undefined;
  /** Default: a new key for each change. State your own to repeat a change after a restart. */
  idempotencyKey?: string | undefined;
  /** Further headers, such as `If-Match`. */
  headers?: Record<string, string> | undefined;
}

export type RequestOptions<O> = CallOptions & PathOptions<O> & QueryOptions<O> & BodyOptions<O>;

/** Optional if nothing in it is required. */
export type Arguments<O> = Record<never, never> extends RequestOptions<O>
  ? [options?: RequestOptions<O>]
  : [options: RequestOptions<O>];

type Body<R> = R extends { content: infer C }
  ? C extends { "application/json": infer B }
    ? B
    : [C] extends [undefined]
      ? undefined
      : string
  : R extends { content?: never }
    ? undefined
    : never;

/** The body of a successful response: JSON, the text of other formats, or undefined. */
export type Result<O> = O extends { responses: infer R }
  ? { [S in keyof R]: S extends 200 | 201 | 202 | 204 ? Body<R[S]> : never }[keyof R]
  : never;

/** One item of a list. */
export type Item<O> = Extract<Result<O>, { items: unknown[] }>["items"][number];
/** The paths of lists. */
export type ListPath = {
  [P in PathOf<"get">]: [Item<Operation<"get", P>>] extends [never] ? never : P;
}[PathOf<"get">];
