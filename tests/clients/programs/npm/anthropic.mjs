// Anthropic's client: messages, its helper for streams, tools, the count of tokens.
import Anthropic from "@anthropic-ai/sdk";
import {
  adapter, apiKey, base, cities, failure, getWeather, unknownModel, parameters, question, report, second, server, user,
  weather, wrongKey,
} from "./common.mjs";

const client = new Anthropic({ baseURL: server, apiKey, maxRetries: 0 });
const ask = (messages, more = {}) => client.messages.create({ model: adapter, max_tokens: 64, messages, ...more });
const assistant = (message) => ({ role: "assistant", content: message.content });

async function tool() {
  const tools = [{ name: "get_weather", description: "Get the weather for a city.", input_schema: parameters }];
  const first = await ask([user(weather)], { model: base, tools });
  const call = first.content.find((block) => block.type === "tool_use");
  const result = { type: "tool_result", tool_use_id: call.id, content: getWeather(call.input) };
  return (await ask([user(weather), assistant(first), user([result])], { model: base, tools })).content[0].text;
}

async function structured() {
  const properties = { city: { type: "string", enum: cities } };
  const format = { type: "json_schema", schema: { ...parameters, properties } };
  return JSON.parse((await ask([user(question)], { output_config: { format } })).content[0].text);
}

const first = await ask([user(question)]);
report({
  answer: first.content[0].text,
  streamed: await client.messages.stream({ model: adapter, max_tokens: 64, messages: [user(question)] }).finalText(),
  tool: await tool(),
  structured: await structured(),
  second_turn: (await ask([user(question), assistant(first), user(second)])).content[0].text,
  wrong_key: await failure(
    new Anthropic({ baseURL: server, apiKey: wrongKey }).messages.create({
      model: adapter, max_tokens: 8, messages: [user(question)],
    }),
  ),
  unknown_model: await failure(ask([user(question)], { model: unknownModel })),
  counted: (await client.messages.countTokens({ model: adapter, messages: [user(question)] })).input_tokens > 0,
});
