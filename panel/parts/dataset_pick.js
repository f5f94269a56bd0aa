// A file of examples: looked through line by line in the browser, shown, and sent on with progress.
const FORMATS = [
  ["messages", "chat"], ["completion", "completion"], ["text", "text"], ["input", "preference"], ["chosen", "text preference"],
];
const MOST_PROBLEMS = 20;

function formatOf(line) { return FORMATS.find(([field]) => field in line)?.[1]; }

function problemOf(line, format) {
  if (line === null || typeof line !== "object" || Array.isArray(line)) return "it is no object";
  const own = formatOf(line);
  if (!own) return "it has none of messages, completion, text, input, chosen";
  if (format && own !== format) return `it is ${own}, the first one is ${format}`;
  if (own === "chat" && (!Array.isArray(line.messages) || !line.messages.some((each) => each?.role === "assistant")))
    return "its messages have no answer of the assistant's";
  return "";
}

async function examined(file) {
  const problems = [], shown = [];
  let format = "", examples = 0, number = 0;
  for (const text of (await file.text()).split("\n")) {
    number += 1;
    if (!text.trim()) continue;
    let line = null, problem = "";
    try { line = JSON.parse(text); problem = problemOf(line, format); } catch { problem = "it is not JSON"; }
    if (problem) { if (problems.length < MOST_PROBLEMS) problems.push(`Line ${number}: ${problem}.`); continue; }
    format ||= formatOf(line);
    examples += 1;
    if (shown.length < 3) shown.push(JSON.stringify(line));
  }
  if (examples < 10 && !problems.length) problems.push(`There are ${examples} examples; a job needs ten.`);
  return { format, examples, problems, shown };
}

export default {
  template: `
    <div class="drop" :class="{over}" @dragover.prevent="over = true" @dragleave="over = false" @drop.prevent="dropped">
      <p>{{ words }}</p>
      <label class="button" tabindex="0" role="button" @keydown.enter="$refs.file.click()" @keydown.space.prevent="$refs.file.click()">Choose a file
        <input ref="file" class="hidden" type="file" accept=".jsonl,.json,.txt" :aria-label="label" @change="take($event.target.files[0])"></label>
      <p v-if="found" role="status"><b>{{ name }}</b>: {{ found.examples }} examples<span v-if="found.format">, {{ found.format }}</span></p>
      <ul v-if="found && found.problems.length" class="notice bad preview" role="alert" style="display: block; text-align: left; width: 100%; box-sizing: border-box">
        <li v-for="problem in found.problems" style="margin-left: 16px">{{ problem }}</li></ul>
      <pre v-for="each in (found ? found.shown : [])" class="code preview" tabindex="0" style="width: 100%; max-height: 84px; text-align: left; box-sizing: border-box; white-space: pre-wrap">{{ each }}</pre>
      <progress v-if="busy" :value="share" max="1" aria-label="Upload"></progress>
    </div>`,
  props: { label: String, words: String },
  data: () => ({ over: false, found: null, name: "", busy: false, share: 0 }),
  methods: {
    dropped(event) { this.over = false; this.take(event.dataTransfer.files[0]); },
    async take(file) {
      if (!file || this.busy) return;
      this.name = file.name;
      this.found = await examined(file);
      this.$emit("examined", { problems: this.found.problems.length });
      if (!this.found.problems.length) this.send(file);
    },
    send(file) {
      const form = new FormData();
      form.append("purpose", "fine-tune");
      form.append("file", file, file.name);
      const request = new XMLHttpRequest();
      request.upload.onprogress = (event) => { this.share = event.loaded / event.total; };
      request.onloadend = () => {
        this.busy = false;
        let document = {};
        try { document = JSON.parse(request.responseText); } catch { /* nobody answered */ }
        this.$emit("verdict", { status: request.status, document });
      };
      this.busy = true;
      request.open("POST", "/transfer/files");
      request.send(form);
    },
  },
};
