export { Hansei } from "./client.js";
export type { AgentEvent, AgentRun, CreateTrace, Run, TraceReceipt } from "./client.js";
export { HanseiError } from "./errors.js";
export type { FieldError, HanseiErrorDetails, Problem } from "./errors.js";
export type { CallOptions, Item, ListPath, Method, Operation, PathOf, Result } from "./operations.js";
export type { components, operations, paths } from "./schema.js";
export type { HanseiOptions } from "./transport.js";
