import { ModelCall, type Message, type WrapperOptions } from "./conversation.js";
import { currentTrace } from "./trace.js";

// The client is of any version, hence `any`.
type Create = (body: any, ...rest: any[]) => any;

interface Api {
  /** The messages that were sent. */
  inputs: (body: any) => unknown;
  /** The messages of a response. */
  outputs: (response: any) => unknown;
  /** Adds an event of a stream to the messages. */
  addEvent: (reply: Message[], event: any) => void;
}

const CHAT: Api = {
  inputs: (body) => body.messages,
  outputs: (response) => response.choices.map((choice: any) => choice.message),
  addEvent: addChunk,
};
const RESPONSES: Api = {
  inputs: ({ instructions, input }) => [
    ...(typeof instructions === "string" ? [{ role: "system", content: instructions }] : []),
    ...(typeof input === "string" ? [{ role: "user", content: input }] : (input ?? [])),
  ],
  outputs: (response) => response.output,
  addEvent: (reply, event) => {
    if (event.type === "response.output_item.done") reply.push(event.item);
  },
};
const recordings = new WeakSet<Create>();

/**
 * Records the calls of an OpenAI client in the current trace: `chat.completions.create` and
 * `responses.create`. Returns the client. A streamed reply is recorded when the agent has read it.
 */
export function recordOpenAI<
  Client extends { chat: { completions: { create: Create } }; responses?: { create: Create } },
>(client: Client, options: WrapperOptions = {}): Client {
  wrap(client.chat.completions, CHAT, options);
  if (client.responses) wrap(client.responses, RESPONSES, options);
  return client;
}

/** Replaces the method of this client; other clients are unchanged. */
function wrap(resource: { create: Create }, api: Api, options: WrapperOptions): void {
  const create = resource.create;
  if (recordings.has(create)) return;
  resource.create = (body, ...rest) => {
    const response = create.call(resource, body, ...rest);
    const trace = currentTrace();
    if (trace === undefined) return response;
    const call = new ModelCall(trace, body?.model, () => api.inputs(body), options);
    const succeed = (result: any) => {
      if (body.stream) watch(result, call, api);
      else call.succeed(() => api.outputs(result));
      return result;
    };
    if (typeof response._thenUnwrap === "function") {
      // The promise of the client has other methods too, and parses the response when it is needed.
      response.asResponse().catch((error: unknown) => call.fail(error));
      return response._thenUnwrap(succeed);
    }
    return response.then(succeed, (error: unknown) => {
      call.fail(error);
      throw error;
    });
  };
  recordings.add(resource.create);
}

function watch(stream: any, call: ModelCall, api: Api): void {
  const iterate = stream[Symbol.asyncIterator].bind(stream) as () => AsyncIterator<unknown>;
  stream[Symbol.asyncIterator] = async function* () {
    const reply: Message[] = [];
    try {
      for await (const event of { [Symbol.asyncIterator]: iterate }) {
        api.addEvent(reply, event);
        yield event;
      }
    } catch (error) {
      call.fail(error);
      throw error;
    } finally {
      call.succeed(() => reply);
    }
  };
}

function addChunk(reply: Message[], chunk: any): void {
  for (const { index, delta } of chunk?.choices ?? []) {
    const message = (reply[index] ??= { role: "assistant", content: "", tool_calls: [] });
    message["content"] += delta?.content ?? "";
    for (const part of delta?.tool_calls ?? []) {
      const call = (message["tool_calls"][part.index] ??= { function: { name: "", arguments: "" } });
      call.id ??= part.id;
      call.function.name += part.function?.name ?? "";
      call.function.arguments += part.function?.arguments ?? "";
    }
  }
}
