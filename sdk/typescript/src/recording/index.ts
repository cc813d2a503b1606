export { hanseiMiddleware } from "./ai-sdk.js";
export type { HanseiMiddleware } from "./ai-sdk.js";
export type { WrapperOptions } from "./conversation.js";
export { recordOpenAI } from "./openai.js";
export { configure, flush, Recorder } from "./recorder.js";
export type { RecorderOptions } from "./recorder.js";
export { currentTrace, render, tool, trace } from "./trace.js";
export type {
  EventOptions,
  EventType,
  Outcome,
  RecordedTrace,
  RenderOptions,
  TraceFields,
  TraceOptions,
} from "./trace.js";
