// Asks a model a question with OpenAI's client and prints the answer while it is generated:
//     node examples/chat.ts pirate "What is the capital of France?"
// Reads LORAGATE_BASE_URL and LORAGATE_API_KEY. Needs Node 22.18 or newer, and `npm ci` in this folder.
import OpenAI from "openai";

const [model, question] = process.argv.slice(2) as [string, string];
const address = process.env.LORAGATE_BASE_URL ?? "http://127.0.0.1:8000";
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: process.env.LORAGATE_API_KEY });

const stream = await client.chat.completions.create({
  model,
  messages: [{ role: "user", content: question }],
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}
process.stdout.write("\n");
