import { ModelCall, type Message, type WrapperOptions } from "./conversation.js";
import { currentTrace } from "./trace.js";

// The types differ by version of the AI SDK, hence `any`.

/** A `LanguageModelMiddleware` of the AI SDK 5, 6 and 7 (specification v2, v3 and v4). */
export interface HanseiMiddleware {
  readonly specificationVersion: any;
  readonly wrapGenerate: (options: any) => Promise<any>;
  readonly wrapStream: (options: any) => Promise<any>;
}

/**
 * Records the calls of a model in the current trace:
 * `wrapLanguageModel({ model, middleware: hanseiMiddleware() })`. A streamed reply is recorded when
 * it has been read to its end.
 */
export function hanseiMiddleware(options: WrapperOptions = {}): HanseiMiddleware {
  /** Runs the call; `record` gets its result. */
  const wrap = async ({ model, params }: any, run: () => any, record: (call: ModelCall, r: any) => any) => {
    const trace = currentTrace();
    if (trace === undefined) return run();
    const call = new ModelCall(trace, model?.modelId, () => params.prompt, options);
    try {
      return record(call, await run());
    } catch (error) {
      call.fail(error);
      throw error;
    }
  };
  return {
    specificationVersion: "v3",
    wrapGenerate: (request) =>
      wrap(request, request.doGenerate, (call, result) => {
        call.succeed(() => [{ role: "assistant", content: result.content }]);
        return result;
      }),
    wrapStream: (request) =>
      wrap(request, request.doStream, (call, result) => {
        return { ...result, stream: result.stream.pipeThrough(watcher(call)) };
      }),
  };
}

/** Passes the parts of a stream on, and records them at its end. */
function watcher(call: ModelCall): TransformStream<Message, Message> {
  const reply: Message[] = [];
  const texts = new Map<unknown, Message>();
  const add = (part: Message) => {
    if (part["type"] === "error") call.fail(part["error"]);
    if (part["type"] === "tool-call" || part["type"] === "tool-result") reply.push(part);
    if (part["type"] !== "text-delta") return;
    const text = texts.get(part["id"]) ?? { type: "text", text: "" };
    if (!texts.has(part["id"])) reply.push(text);
    texts.set(part["id"], text);
    text["text"] += part["delta"];
  };
  return new TransformStream({
    transform(part, controller) {
      add(part);
      controller.enqueue(part);
    },
    flush: () => call.succeed(() => [{ role: "assistant", content: reply }]),
  });
}
