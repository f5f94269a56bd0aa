// Vercel's AI SDK: its default OpenAI provider (Responses), openai-compatible (chats), and Anthropic's.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import {
  adapter, apiKey, base, baseURL, cities, failure, getWeather, unknownModel, question, report, second, user, weather,
  wrongKey,
} from "./common.mjs";

const providers = {
  responses: (key) => createOpenAI({ baseURL, apiKey: key }),
  compatible: (key) =>
    createOpenAICompatible({ name: "loragate", baseURL, apiKey: key, includeUsage: true, supportsStructuredOutputs: true }),
  anthropic: (key) => createAnthropic({ baseURL, apiKey: key }),
};
// Without it, the second request of Responses refers to the first's items, which this server does not store.
const providerOptions = { openai: { store: false } };
const status = (error) => `${error.constructor.name} ${error.statusCode}`;

async function outcomes(provider) {
  const ask = (options, model = adapter) =>
    generateText({ model: provider(apiKey)(model), maxOutputTokens: 64, maxRetries: 0, providerOptions, ...options });
  const first = await ask({ prompt: question, instructions: "Be brief." });
  const get_weather = tool({
    description: "Get the weather for a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: getWeather,
  });
  const object = Output.object({ schema: z.object({ city: z.enum(cities) }) });
  return {
    answer: first.text,
    streamed: await streamText({ model: provider(apiKey)(adapter), prompt: question, maxOutputTokens: 64, providerOptions }).text,
    tool: (await ask({ prompt: weather, tools: { get_weather }, stopWhen: stepCountIs(3) }, base)).text,
    structured: (await ask({ prompt: question, output: object })).output,
    second_turn: (await ask({ messages: [user(question), ...first.response.messages, user(second)] })).text,
    wrong_key: await failure(
      generateText({ model: provider(wrongKey)(adapter), prompt: question, maxOutputTokens: 8, maxRetries: 0 }), status,
    ),
    unknown_model: await failure(ask({ prompt: question }, unknownModel), status),
  };
}

/** Return what the server says when the second turn refers to what it does not store. */
async function withoutTheOption() {
  const model = providers.responses(apiKey)(adapter);
  const first = await generateText({ model, prompt: question });
  const messages = [user(question), ...first.response.messages, user(second)];
  return failure(generateText({ model, messages, maxRetries: 0 }), (error) => error.message);
}

report({
  without_the_option: await withoutTheOption(),
  ...(await outcomes(providers.responses)),
  compatible: await outcomes(providers.compatible),
  anthropic: await outcomes(providers.anthropic),
});
