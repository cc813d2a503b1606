// Records the messages of model calls in a trace. A call repeats the conversation so far; each of
// its messages is recorded once.
import { createHash } from "node:crypto";
import { describeError, toText } from "./encoding.js";
import { warn } from "./log.js";
import type { EventType, RecordedTrace } from "./trace.js";

const EVENT_TYPES_OF_ROLES: Record<string, EventType> = {
  user: "user_message",
  assistant: "llm_response",
};

/** A message, or a part of one, of any of the APIs. */
export type Message = Record<string, any>;

export interface WrapperOptions {
  /** False leaves tool calls to `tool`. Default: true. */
  tools?: boolean | undefined;
}

/** What a trace has of its model calls. One for all clients that the agent run uses. */
class Conversation {
  readonly known = new Map<string, number>();
  readonly toolNames = new Map<unknown, string>();
}

const conversations = new WeakMap<RecordedTrace, Conversation>();

/** One model call of a trace. Its methods never throw. */
export class ModelCall {
  readonly #trace: RecordedTrace;
  readonly #model: string;
  readonly #recordsTools: boolean;
  readonly #conversation: Conversation;
  /** How often each content was seen in the conversation that this call sent. */
  readonly #seen = new Map<string, number>();
  /** Whether the messages are the reply. Its text is new, even if an earlier reply was the same. */
  #isReply = false;

  /** `inputs` are the messages in the form of the OpenAI APIs or of the AI SDK. */
  constructor(
    trace: RecordedTrace,
    model: unknown,
    inputs: () => unknown,
    { tools = true }: WrapperOptions,
  ) {
    this.#trace = trace;
    this.#model = String(model ?? "");
    this.#recordsTools = tools;
    this.#conversation = conversations.get(trace) ?? new Conversation();
    conversations.set(trace, this.#conversation);
    this.#writeAll(inputs);
  }

  succeed(outputs: () => unknown): void {
    this.#isReply = true;
    this.#writeAll(outputs);
  }

  fail(error: unknown): void {
    this.#trace.error(error, { metadata: { model: this.#model } });
  }

  #writeAll(messages: () => unknown): void {
    try {
      for (const message of asList(messages())) this.#write(message);
    } catch (error) {
      warn(`A model call is not recorded: ${describeError(error)}`);
    }
  }

  #write(message: Message): void {
    const { type, role, content } = message;
    if (type === "function_call") {
      return this.#toolCall(message["name"], message["call_id"], message["arguments"]);
    }
    if (type === "tool-call") {
      return this.#toolCall(message["toolName"], message["toolCallId"], message["input"]);
    }
    if (type === "function_call_output") {
      return this.#toolResponse(message["call_id"], message["output"]);
    }
    if (type === "tool-result") {
      const { output = {}, result = output.value ?? output.reason, isError } = message;
      const hasFailed = isError === true || /^(error|execution-denied)/.test(output.type);
      return this.#toolResponse(message["toolCallId"], result, hasFailed);
    }
    if (role === "tool" && "tool_call_id" in message) {
      return this.#toolResponse(message["tool_call_id"], content);
    }
    if (type !== undefined && type !== "message") return; // reasoning and other items
    this.#text(role, content);
    for (const part of asList(content)) if (part["type"]?.startsWith("tool-")) this.#write(part);
    for (const call of asList(message["tool_calls"])) {
      const made = call["function"] ?? call["custom"] ?? {};
      this.#toolCall(made.name, call["id"], made.arguments ?? made.input);
    }
  }

  #text(role: unknown, content: unknown): void {
    const texts = asList(content).filter(isText);
    const text = texts.map((part) => part["text"]).join("\n");
    if (text.trim() === "" || !this.#isNew(`${role}\0${text}`, this.#isReply)) return;
    const type = EVENT_TYPES_OF_ROLES[String(role)] ?? "system_event";
    this.#trace.event(type, text, this.#isReply ? { metadata: { model: this.#model } } : {});
  }

  /** Whether the trace does not have this occurrence of the content in the conversation. */
  #isNew(content: string, isReply = false): boolean {
    const { known } = this.#conversation;
    const digest = createHash("sha256").update(content).digest("base64");
    const before = Math.max(this.#seen.get(digest) ?? 0, isReply ? (known.get(digest) ?? 0) : 0);
    this.#seen.set(digest, before + 1);
    if (before < (known.get(digest) ?? 0)) return false;
    known.set(digest, before + 1);
    return true;
  }

  #toolCall(name: unknown, callId: unknown, input: unknown): void {
    if (!this.#recordsTools || !this.#isNew(`call\0${callId}`)) return;
    this.#conversation.toolNames.set(callId, String(name));
    const metadata = { call_id: callId };
    this.#trace.event("tool_call", input, { toolName: String(name), metadata });
  }

  #toolResponse(callId: unknown, result: unknown, hasFailed = false): void {
    if (!this.#recordsTools || !this.#isNew(`result\0${callId}`)) return;
    const parts = Array.isArray(result) ? asList(result) : [];
    const hasTexts = parts.length > 0 && parts.every(isText);
    const text = hasTexts ? parts.map((part) => part["text"]).join("\n") : toText(result);
    this.#trace.event("tool_response", text, {
      toolName: this.#conversation.toolNames.get(callId),
      metadata: { call_id: callId },
      ...(hasFailed && { error: { message: text.slice(0, 2_000) } }),
    });
  }
}

function asList(value: unknown): Message[] {
  if (typeof value === "string") return [{ type: "text", text: value }];
  if (!Array.isArray(value)) return [];
  return value.filter((item): item is Message => typeof item === "object" && item !== null);
}

function isText(part: Message): boolean {
  const isKnown = [undefined, "text", "input_text", "output_text"].includes(part["type"]);
  return isKnown && typeof part["text"] === "string";
}
