// promptfoo: its providers for chats, Responses, completions and Anthropic's messages, with a look at the answer.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { adapter, apiKey, base, baseURL, unknownModel, question, report, server, wrongKey } from "./common.mjs";

const program = join(import.meta.dirname, "node_modules/promptfoo/dist/src/main.js");
const openai = { apiBaseUrl: baseURL, temperature: 0 };
const asking = (id, config = openai) => ({ id, config });
const quiet = { PROMPTFOO_DISABLE_TELEMETRY: "1", PROMPTFOO_DISABLE_UPDATE: "1" };

/** Ask the providers; return whether each passed, and the errors. */
function evaluate(providers, key = apiKey) {
  const folder = mkdtempSync(join(tmpdir(), "promptfoo-"));
  const [config, results] = [join(folder, "promptfooconfig.json"), join(folder, "results.json")];
  const tests = [{ vars: { question }, assert: [{ type: "contains", value: "Paris" }] }];
  writeFileSync(config, JSON.stringify({ prompts: ["{{question}}"], providers, tests }));
  const keys = { OPENAI_API_KEY: key, ANTHROPIC_API_KEY: key, PROMPTFOO_CONFIG_DIR: folder };
  const options = ["eval", "--config", config, "--output", results, "--no-cache", "--no-table"];
  const done = spawnSync(process.execPath, [program, ...options], { env: { ...process.env, ...quiet, ...keys } });
  if (done.error) throw done.error;
  return JSON.parse(readFileSync(results, "utf8")).results.results;
}

const passed = evaluate([
  asking(`openai:chat:${adapter}`),
  asking(`openai:responses:${adapter}`),
  asking(`anthropic:messages:${adapter}`, { apiBaseUrl: server, max_tokens: 64 }),
]);
const status = ([result]) => /API error: (\d+)/.exec(result.error)?.[1];
report({
  passed: Object.fromEntries(passed.map((result) => [result.provider.id, result.success])),
  completion: evaluate([asking(`openai:completion:${base}`, { ...openai, max_tokens: 8 })])[0].error ?? "none",
  wrong_key: status(evaluate([asking(`openai:chat:${adapter}`)], wrongKey)),
  unknown_model: status(evaluate([asking(`openai:chat:${unknownModel}`)])),
});
