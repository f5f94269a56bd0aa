// OpenAI's client: chats, the helpers for streams, tools and parsing, Responses in two turns.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import {
  adapter, apiKey, base, baseURL, cities, failure, getWeather, unknownModel, parameters, question, report, second, user,
  weather, wrongKey,
} from "./common.mjs";

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const Place = z.object({ city: z.enum(cities) });

async function ask(messages, model = adapter) {
  return (await client.chat.completions.create({ model, messages })).choices[0].message;
}

async function streamed() {
  const stream = client.chat.completions.stream({
    model: adapter, messages: [user(question)], stream_options: { include_usage: true },
  });
  const deltas = [];
  stream.on("content", (delta) => deltas.push(delta));
  await stream.finalChatCompletion();
  return deltas.join("");
}

async function tool() {
  const parse = (text) => JSON.parse(text);
  const runner = client.chat.completions.runTools({
    model: base,
    messages: [user(weather)],
    tools: [{
      type: "function",
      function: { name: "get_weather", function: getWeather, parse, description: "Get the weather for a city.", parameters },
    }],
  });
  return runner.finalContent();
}

async function structured() {
  const format = zodResponseFormat(Place, "place");
  const asked = { model: adapter, messages: [user(question)], response_format: format };
  const { message } = (await client.chat.completions.parse(asked)).choices[0];
  await ask([user(question), message, user(second)]); // with its `parsed`
  return message.parsed;
}

async function responsesTool() {
  const tools = [{ type: "function", name: "get_weather", parameters, strict: true }];
  const first = await client.responses.create({ model: base, input: [user(weather)], tools, store: false });
  const call = first.output.find((item) => item.type === "function_call");
  const output = getWeather(JSON.parse(call.arguments));
  const input = [user(weather), ...first.output, { type: "function_call_output", call_id: call.call_id, output }];
  return (await client.responses.create({ model: base, input, tools, store: false })).output_text;
}

async function responsesStreamed() {
  const stream = client.responses.stream({ model: adapter, input: question });
  return (await stream.finalResponse()).output_text;
}

const first = await ask([user(question)]);
report({
  answer: first.content,
  streamed: await streamed(),
  tool: await tool(),
  structured: await structured(),
  second_turn: (await ask([user(question), first, user(second)])).content,
  wrong_key: await failure(new OpenAI({ baseURL, apiKey: wrongKey }).models.list()),
  unknown_model: await failure(ask([user(question)], unknownModel)),
  responses_streamed: await responsesStreamed(),
  responses_tool: await responsesTool(),
  responses_structured: (await client.responses.parse({
    model: adapter, input: question, text: { format: zodTextFormat(Place, "place") },
  })).output_parsed,
  embeddings: (await client.embeddings.create({ model: base, input: ["a", "b"] })).data.length,
});
