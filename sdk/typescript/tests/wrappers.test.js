// The wrappers of the OpenAI client and of the AI SDK, with the real packages and invented replies.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import * as aiV7 from "ai";
import * as mocksV7 from "ai/test";
import * as aiV6 from "ai-v6";
import * as mocksV6 from "ai-v6/test";
import OpenAI from "openai";
import { hanseiMiddleware, Recorder, recordOpenAI, tool, trace } from "@hansei/client/recording";
import { newFolder, StubService } from "./service.js";

const service = new StubService();
let recorder;

before(async () => {
  await service.start();
  recorder = new Recorder({ url: service.url, apiKey: "hsk_stub", spoolDir: newFolder() });
});
after(() => service.stop());
beforeEach(() => service.traces.clear());

/** Runs an agent in a trace and returns the events: type, tool, content, and the error if any. */
async function record(run) {
  await trace("refund", { recorder }, run).catch(() => {});
  assert.equal(await recorder.flush(), 0);
  return [...service.traces.values()][0].events.map(({ event_type, tool_name, content, error }) =>
    [event_type, tool_name, content, error?.message].filter((each) => each !== undefined),
  );
}

/** A client of OpenAI whose responses are these. */
function openai(replies, options) {
  const fetch = async () => {
    const { status = 200, ...reply } = replies.shift();
    if (!reply.stream) return Response.json(reply, { status });
    const lines = reply.stream.map((each) => `event: ${each.type ?? "x"}\ndata: ${JSON.stringify(each)}\n\n`);
    const headers = { "content-type": "text/event-stream" };
    return new Response(`${lines.join("")}data: [DONE]\n\n`, { headers });
  };
  return recordOpenAI(new OpenAI({ apiKey: "sk", baseURL: "http://x", fetch, maxRetries: 0 }), options);
}

const CALL = { id: "c1", type: "function", function: { name: "refund", arguments: '{"order":7}' } };
const completion = (message) => ({ choices: [{ index: 0, message: { role: "assistant", ...message } }] });
const chunk = (delta) => ({ choices: [{ index: 0, delta }] });
const EXPECTED = [
  ["system_event", "Be kind."],
  ["user_message", "Refund order 7."],
  ["tool_call", "refund", '{"order":7}'],
  ["tool_response", "refund", "pending"],
  ["llm_response", "Not yet."],
];
const MESSAGES = [
  { role: "system", content: "Be kind." },
  { role: "user", content: [{ type: "text", text: "Refund order 7." }] },
];

test("OpenAI chat: each message of a conversation is recorded once", async () => {
  const client = openai([
    completion({ content: null, tool_calls: [CALL] }),
    completion({ content: "Not yet." }),
    completion({ content: "Not yet." }),
  ]);
  assert.equal(recordOpenAI(client), client);
  const events = await record(async () => {
    const messages = [...MESSAGES];
    const first = await client.chat.completions.create({ model: "m", messages });
    messages.push(first.choices[0].message, { role: "tool", tool_call_id: "c1", content: "pending" });
    const second = await client.chat.completions.create({ model: "m", messages }).withResponse();
    messages.push(second.data.choices[0].message, { role: "user", content: "Really?" });
    await client.chat.completions.create({ model: "m", messages });
  });
  assert.deepEqual(events, [...EXPECTED, ["user_message", "Really?"], ["llm_response", "Not yet."]]);
});

test("OpenAI chat: a stream passes through and is recorded when it ends", async () => {
  const stream = [
    chunk({ role: "assistant", content: "Let me " }),
    chunk({ content: "see." }),
    chunk({ tool_calls: [{ index: 0, id: "c1", function: { name: "refund", arguments: '{"order"' } }] }),
    chunk({ tool_calls: [{ index: 0, function: { arguments: ":7}" } }] }),
  ];
  const client = openai([{ stream }, { stream }]);
  const request = { model: "m", messages: MESSAGES, stream: true };
  const chunks = [];
  const events = await record(async () => {
    for await (const each of await client.chat.completions.create(request)) chunks.push(each);
  });
  assert.deepEqual(chunks, stream);
  assert.deepEqual(events.slice(2), [["llm_response", "Let me see."], EXPECTED[2]]);
  service.traces.clear();
  const early = await record(async () => {
    for await (const each of await client.chat.completions.create(request)) if (each) break;
  });
  assert.deepEqual(early.slice(2), [["llm_response", "Let me "]]);
});

test("OpenAI responses, with and without a stream", async () => {
  const item = { type: "function_call", call_id: "c1", name: "refund", arguments: '{"order":7}' };
  const answer = { type: "message", role: "assistant", content: [{ type: "output_text", text: "Not yet." }] };
  const client = openai([
    { object: "response", output: [{ type: "reasoning", summary: [] }, item] },
    { stream: [{ type: "response.output_item.done", item: answer }] },
  ]);
  const events = await record(async () => {
    const input = [{ role: "user", content: "Refund order 7." }];
    const first = await client.responses.create({ model: "m", instructions: "Be kind.", input });
    input.push(...first.output, { type: "function_call_output", call_id: "c1", output: "pending" });
    const body = { model: "m", instructions: "Be kind.", input, stream: true };
    for await (const event of await client.responses.create(body)) assert.equal(event.item.role, "assistant");
  });
  assert.deepEqual(events, EXPECTED);
});

test("OpenAI: errors, raw responses, parse, tools: false, and calls outside of a trace", async () => {
  const failed = await record(() =>
    openai([{ status: 400, error: { message: "No." } }]).chat.completions.create({ model: "m", messages: MESSAGES }),
  );
  assert.deepEqual(failed.slice(2), [
    ["error_event", "Error: 400 No.", "Error: 400 No."],
    ["error_event", "Error: 400 No.", "Error: 400 No."],
  ]);
  service.traces.clear();
  const client = openai(
    [completion({ content: "a" }), completion({ content: "{}", tool_calls: [CALL] }), completion({ content: "c" })],
    { tools: false },
  );
  const events = await record(async () => {
    const raw = await client.chat.completions.create({ model: "m", messages: MESSAGES }).asResponse();
    assert.equal((await raw.json()).choices[0].message.content, "a");
    await client.chat.completions.parse({ model: "m", messages: MESSAGES });
  });
  assert.deepEqual(events, [...EXPECTED.slice(0, 2), ["llm_response", "{}"]]);
  const outside = await client.chat.completions.create({ model: "m", messages: MESSAGES });
  assert.equal(outside.choices[0].message.content, "c");
});

// The AI SDK

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const finished = (reason) => ({ finishReason: { unified: reason, raw: reason }, usage });
const toolCall = { type: "tool-call", toolCallId: "c1", toolName: "refund", input: '{"order":7}' };
const text = (content) => ({ type: "text", text: content });

for (const [version, ai, Mock] of [
  [6, aiV6, mocksV6.MockLanguageModelV3],
  [7, aiV7, mocksV7.MockLanguageModelV4],
]) {
  const wrap = (model, options) =>
    ai.wrapLanguageModel({ model: new Mock(model), middleware: hanseiMiddleware(options) });
  const agent = (execute) => ({
    system: "Be kind.",
    prompt: "Refund order 7.",
    stopWhen: ai.stepCountIs(3),
    maxRetries: 0,
    tools: {
      refund: ai.tool({ inputSchema: ai.jsonSchema({ type: "object", properties: {} }), execute }),
    },
  });

  test(`AI SDK ${version}: generateText with tools`, async () => {
    const replies = [
      { content: [toolCall], ...finished("tool-calls"), warnings: [] },
      { content: [text("Not yet.")], ...finished("stop"), warnings: [] },
    ];
    const model = wrap({ doGenerate: async () => replies.shift() });
    const events = await record(async () => {
      const result = await ai.generateText({ model, ...agent(async () => "pending") });
      assert.equal(result.text, "Not yet.");
    });
    assert.deepEqual(events, EXPECTED);
  });

  test(`AI SDK ${version}: streamText, and a tool that fails`, async () => {
    const parts = [
      [{ type: "stream-start", warnings: [] }, toolCall, { type: "finish", ...finished("tool-calls") }],
      [
        { type: "text-start", id: "1" },
        { type: "text-delta", id: "1", delta: "Not " },
        { type: "text-delta", id: "1", delta: "yet." },
        { type: "text-end", id: "1" },
        { type: "finish", ...finished("stop") },
      ],
    ];
    const model = wrap({ doStream: async () => ({ stream: ReadableStream.from(parts.shift()) }) });
    const events = await record(async () => {
      const { textStream } = ai.streamText({ model, ...agent(async () => { throw new Error("pending"); }) });
      let answer = "";
      for await (const part of textStream) answer += part;
      assert.equal(answer, "Not yet.");
    });
    const message = version === 6 ? "pending" : "Error: pending";
    assert.deepEqual(events, EXPECTED.with(3, ["tool_response", "refund", message, message]));
  });

  test(`AI SDK ${version}: errors, tools: false, and calls outside of a trace`, async () => {
    const replies = [{ content: [toolCall], ...finished("tool-calls"), warnings: [] }];
    const doGenerate = async () => {
      if (replies.length === 0) throw new Error("No.");
      return replies.shift();
    };
    const model = wrap({ doGenerate }, { tools: false });
    const execute = tool("refund", async ({ order }) => `${order} is pending`);
    const events = await record(() => ai.generateText({ model, ...agent(execute) }));
    assert.deepEqual(events, [
      ...EXPECTED.slice(0, 3),
      ["tool_response", "refund", "7 is pending"],
      ["error_event", "Error: No.", "Error: No."],
      ["error_event", "Error: No.", "Error: No."],
    ]);
    await assert.rejects(ai.generateText({ model, prompt: "x", maxRetries: 0 }), /No\./);
  });
}
