// The official client for Node.js. NPUD_URL: a daemon; NPUD_TOOLS_URL: one whose model answers NPUD_TOOLS_PROMPT with a call of
// get_weather and NPUD_TOOLS_ARGUMENTS.
import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const open = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 120_000 });
const client = open(process.env.NPUD_URL);
const tools = open(process.env.NPUD_TOOLS_URL);
const expected = JSON.parse(process.env.NPUD_TOOLS_ARGUMENTS);
const model = "any";

const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a place",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" } },
      required: ["city"],
    },
  },
};

test("completions, whole and streamed, say the same", async () => {
  const request = { model, prompt: "The capital of France is", max_tokens: 8, temperature: 0 };
  const whole = await client.completions.create(request);
  assert.match(whole.choices[0].text, /Paris/);
  assert.equal(whole.usage.completion_tokens, 8);
  let text = "";
  for await (const chunk of await client.completions.create({ ...request, stream: true })) text += chunk.choices[0].text;
  assert.equal(text, whole.choices[0].text);
});

test("chats, whole and streamed, say the same", async () => {
  const request = {
    model,
    messages: [{ role: "user", content: "Name a colour." }],
    max_completion_tokens: 12,
    temperature: 0,
  };
  const whole = await client.chat.completions.create(request);
  assert.equal(whole.choices[0].message.role, "assistant");
  const stream = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
  let text = "";
  stream.on("content", (delta) => (text += delta));
  const final = await stream.finalChatCompletion();
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(final.choices[0].message.content, text);
  assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
  assert.equal(final.usage.completion_tokens, whole.usage.completion_tokens);
});

test("a stream that is left alone ends the generation", async () => {
  const stream = await client.chat.completions.create({
    model,
    messages: [{ role: "user", content: "Count to a thousand." }],
    stream: true,
  });
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    break; // which aborts the request
  }
});

test("a tool is called, and its result goes back", async () => {
  const messages = [{ role: "user", content: process.env.NPUD_TOOLS_PROMPT }];
  const request = { model, messages, tools: [weather], temperature: 0, stop: ["\n"] };
  const stream = tools.chat.completions.stream(request);
  const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
  assert.equal(finish_reason, "tool_calls");
  assert.equal(message.tool_calls.length, 1);
  assert.equal(message.tool_calls[0].function.name, "get_weather");
  assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), expected);
  const whole = (await tools.chat.completions.create(request)).choices[0].message;
  assert.equal(whole.tool_calls[0].function.arguments, message.tool_calls[0].function.arguments);
  const answer = await tools.chat.completions.create({
    model,
    messages: [
      { role: "user", content: "x" },
      whole,
      { role: "tool", tool_call_id: whole.tool_calls[0].id, content: "It rains. ".repeat(12) + "It" },
    ],
    tools: [weather],
    temperature: 0,
    max_completion_tokens: 4,
  });
  assert.match(answer.choices[0].message.content, /rains/);
});

const Place = z.object({ city: z.enum(["Bern", "Paris"]), inhabitants: z.number().int().min(0).max(99) });

test("a chat's answer is parsed by the schema that it was forced to", async () => {
  const answer = await client.chat.completions.parse({
    model,
    messages: [{ role: "user", content: "Where are you?" }],
    response_format: zodResponseFormat(Place, "place"),
    temperature: 1.5,
    seed: 1,
  });
  assert.equal(answer.choices[0].finish_reason, "stop");
  Place.parse(answer.choices[0].message.parsed);
});

test("a function that must be called gets arguments of its schema", async () => {
  const answer = await client.chat.completions.parse({
    model,
    messages: [{ role: "user", content: "Where are you?" }],
    tools: [zodFunction({ name: "go", parameters: Place })],
    tool_choice: { type: "function", function: { name: "go" } },
    temperature: 1.5,
    seed: 1,
  });
  const [call] = answer.choices[0].message.tool_calls;
  assert.equal(call.function.name, "go");
  Place.parse(call.function.parsed_arguments);
});

test("responses go on from one another, whole and streamed", async () => {
  const first = await client.responses.create({
    model,
    input: "My name is Ada. Remember it.",
    max_output_tokens: 12,
    temperature: 0,
  });
  assert.equal(first.output[0].type, "message");
  assert.equal(first.output_text, first.output[0].content[0].text);
  assert.deepEqual((await client.responses.retrieve(first.id)).output, first.output);
  const request = { model, input: "What is my name?", previous_response_id: first.id, max_output_tokens: 12, temperature: 0 };
  const second = await client.responses.create(request);
  assert.ok(second.usage.input_tokens_details.cached_tokens > 0);
  const stream = client.responses.stream(request);
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  assert.equal((await stream.finalResponse()).output_text, second.output_text);
  assert.equal(text, second.output_text);
  await client.responses.delete(first.id);
  await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
});

test("a response's text is parsed by the schema that it was forced to", async () => {
  const response = await client.responses.parse({
    model,
    input: "Where are you?",
    text: { format: zodTextFormat(Place, "place") },
    temperature: 1.5,
  });
  Place.parse(response.output_parsed);
});

test("a response calls a tool, and its output goes back", async () => {
  const { name, description, parameters } = weather.function;
  const stream = await tools.responses.create({
    model,
    input: process.env.NPUD_TOOLS_PROMPT,
    tools: [{ type: "function", name, description, parameters, strict: false }],
    temperature: 0,
    stop: ["\n"],
    stream: true,
  });
  let response;
  for await (const event of stream) if (event.type === "response.completed") response = event.response;
  const [call] = response.output;
  assert.equal(call.type, "function_call");
  assert.deepEqual(JSON.parse(call.arguments), expected);
  const answer = await tools.responses.create({
    model,
    previous_response_id: response.id,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "It rains. ".repeat(12) + "It" }],
    temperature: 0,
    max_output_tokens: 4,
  });
  assert.match(answer.output_text, /rains/);
});

test("embeddings come as unit vectors", async () => {
  const answer = await client.embeddings.create({ model, input: ["a text", "another one"] });
  assert.deepEqual(answer.data.map((item) => item.index), [0, 1]);
  for (const { embedding } of answer.data) {
    const length = Math.sqrt(embedding.reduce((sum, x) => sum + x * x, 0));
    assert.ok(Math.abs(length - 1) < 1e-5, `length ${length}`);
  }
  const floats = await client.embeddings.create({ model, input: "a text", encoding_format: "float" });
  assert.deepEqual(floats.data[0].embedding.map(Math.fround), Array.from(answer.data[0].embedding));
});

test("models are listed and found", async () => {
  const models = [];
  for await (const item of client.models.list()) models.push(item);
  assert.equal(models.length, 1);
  assert.deepEqual(await client.models.retrieve(models[0].id), models[0]);
  await assert.rejects(client.models.retrieve("another"), OpenAI.NotFoundError);
});

test("mistakes are the errors that OpenAI's would be", async () => {
  await assert.rejects(
    client.chat.completions.create({ model, messages: [{ role: "nobody", content: "x" }] }),
    (error) => error instanceof OpenAI.BadRequestError && error.status === 400 && error.param === "messages[0].role",
  );
  await assert.rejects(
    client.completions.create({ model, prompt: "word ".repeat(9000) }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded",
  );
});
