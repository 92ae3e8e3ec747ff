// Vercel's AI SDK. The environment is as in openai.mjs.
import assert from "node:assert/strict";
import { test } from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const open = (url) => createOpenAICompatible({ name: "npud", baseURL: `${url}/v1`, includeUsage: true });
const npud = open(process.env.NPUD_URL);
const tools = open(process.env.NPUD_TOOLS_URL);

test("a chat is streamed", async () => {
  const result = streamText({
    model: npud("any"),
    prompt: "Name a colour.",
    maxOutputTokens: 12,
    temperature: 0,
    onError: ({ error }) => assert.fail(error),
  });
  let text = "";
  for await (const part of result.textStream) text += part;
  assert.ok(text.length > 0);
  assert.ok(["stop", "length"].includes(await result.finishReason));
  const usage = await result.usage;
  assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0 && usage.outputTokens <= 12);
});

test("a tool is called with its arguments", async () => {
  const called = [];
  const result = streamText({
    model: tools("any"),
    prompt: process.env.NPUD_TOOLS_PROMPT,
    temperature: 0,
    stopSequences: ["\n"],
    stopWhen: stepCountIs(1),
    tools: {
      get_weather: tool({
        description: "The weather of a place",
        inputSchema: z.object({ city: z.string(), days: z.number().int().optional() }),
        execute: async (input) => {
          called.push(input);
          return "It rains.";
        },
      }),
    },
    onError: ({ error }) => assert.fail(error),
  });
  await result.consumeStream();
  assert.equal(await result.finishReason, "tool-calls");
  assert.deepEqual(called, [JSON.parse(process.env.NPUD_TOOLS_ARGUMENTS)]);
  assert.equal((await result.toolResults)[0].output, "It rains.");
});

test("texts become vectors", async () => {
  const { embeddings, usage } = await embedMany({
    model: npud.textEmbeddingModel("any"),
    values: ["a text", "another one"],
  });
  assert.equal(embeddings.length, 2);
  assert.equal(embeddings[0].length, embeddings[1].length);
  assert.ok(usage.tokens > 0);
});
