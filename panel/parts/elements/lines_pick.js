// A picker for files of JSON lines: validates a file line by line without holding it in memory, shows some lines, and
// uploads it with progress. The lines are examples for training, or the requests of a batch.
const FORMATS = {
  chat: ["messages"], completion: ["prompt", "completion"], text: ["text"],
  preference: ["input", "preferred_output", "non_preferred_output"], "text preference": ["prompt", "chosen", "rejected"],
  "labelled text": ["text", "label"], "labelled chat": ["messages", "label"],
};
const MAX_PROBLEMS = 20, MAX_SHOWN = 3, MAX_LINE = 4 << 20, MAX_LETTERS = 600, MAX_TURNS = 6, MAX_REQUESTS = 50000;

// Returns the formats whose fields the line has; a label decides between two.
function formatsOf(line) {
  const found = Object.keys(FORMATS).filter((format) => FORMATS[format].every((field) => field in line));
  const labelled = found.filter((format) => format.startsWith("labelled"));
  return labelled.length ? labelled : found;
}

function exampleProblem(line, format) {
  const [own, other] = formatsOf(line);
  if (!own) return "it does not have the fields of any format";
  if (other) return `it matches both ${own} and ${other}`;
  if (format && own !== format) return `its format is ${own}, but that of the first line is ${format}`;
  if (own === "chat" && (!Array.isArray(line.messages) || !line.messages.some((each) => each?.role === "assistant")))
    return "its messages contain none from the assistant";
  return "";
}

// Yields the lines of a file; null for one that is too long.
async function* linesOf(file, onProgress) {
  const reader = file.stream().getReader(), decoder = new TextDecoder();
  let rest = "", cut = false, read = 0;
  const whole = (text) => { const line = cut || text.length > MAX_LINE ? null : text; cut = false; return line; };
  for (;;) {
    const { value, done } = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const pieces = rest.split("\n");
    rest = pieces.pop();
    for (const piece of pieces) yield whole(piece);
    if (rest.length > MAX_LINE) { cut = true; rest = ""; }
    if (done) { if (rest || cut) yield whole(rest); return; }
    read += value.length;
    onProgress(read / file.size);
  }
}

// What a file of each purpose has: the noun for its lines, the problem of a line or "", its format, and that of all.
const READERS = {
  "fine-tune": () => ({
    noun: "examples", problem: exampleProblem, format: (line) => formatsOf(line)[0], parts: partsOf,
    total: (lines) => (lines < 10 ? `There are ${lines} examples, but a job needs at least ten.` : ""),
  }),
  batch: (endpoints) => {
    const seen = new Set();
    return {
      noun: "requests", problem: (line, url) => requestProblem(line, url, endpoints, seen), format: (line) => line.url,
      parts: (line) => [["custom_id", wordsOf(line.custom_id)], ...askedBy(line.body)],
      total: (lines) => (lines ? (lines > MAX_REQUESTS ? `There are ${lines} requests, but a batch may have ${MAX_REQUESTS}.` : "") : "There are no requests."),
    };
  },
};

function requestProblem(line, url, endpoints, seen) {
  if (typeof line.custom_id !== "string" || !line.custom_id) return "it has no custom_id";
  if (seen.has(line.custom_id)) return "an earlier line has the same custom_id";
  if (line.method !== "POST") return "its method is not POST";
  if (!endpoints.includes(line.url)) return "its url is not an endpoint of batches";
  if (url && line.url !== url) return `its url is ${line.url}, but that of the first line is ${url}`;
  if (typeof line.body?.model !== "string") return "its body has no model";
  seen.add(line.custom_id);
  return "";
}

async function examine(file, reader, onProgress) {
  const problems = [], shown = [];
  let format = "", lines = 0, number = 0;
  for await (const text of linesOf(file, onProgress)) {
    number += 1;
    if (text !== null && !text.trim()) continue;
    let line = null, problem = "";
    if (text === null) problem = "it is longer than 4 MiB";
    else try { line = JSON.parse(text); } catch { problem = "it is not JSON"; }
    if (!problem && (line === null || typeof line !== "object" || Array.isArray(line))) problem = "it is not an object";
    problem ||= reader.problem(line, format);
    if (problem) { if (problems.length < MAX_PROBLEMS) problems.push(`Line ${number}: ${problem}.`); continue; }
    format ||= reader.format(line);
    lines += 1;
    if (shown.length < MAX_SHOWN) shown.push(reader.parts(line, format));
  }
  const problem = problems.length ? "" : reader.total(lines);
  if (problem) problems.push(problem);
  return { format, lines, noun: reader.noun, problems, shown };
}

function wordsOf(content) {
  const text = typeof content === "string" ? content : JSON.stringify(content ?? "");
  return text.length > MAX_LETTERS ? `${text.slice(0, MAX_LETTERS)}…` : text;
}

function turnsOf(messages) {
  if (!Array.isArray(messages)) return [];
  return messages.slice(-MAX_TURNS).map((each) => [String(each?.role ?? "?"), wordsOf(each?.content ?? each?.tool_calls)]);
}

function answerOf(output) { return wordsOf(Array.isArray(output) ? output[0]?.content : output); }

// Returns the parts of a request that show what it asks for.
function askedBy(body) {
  const asked = [["model", wordsOf(body.model)], ...turnsOf(body.messages)];
  for (const field of ["prompt", "input", "query"]) if (field in body) asked.push([field, wordsOf(body[field])]);
  return asked;
}

// Returns the parts of an example, each with a name and a text.
function partsOf(line, format) {
  if (format.startsWith("labelled"))
    return [...(format === "labelled chat" ? turnsOf(line.messages) : [["text", wordsOf(line.text)]]), ["label", wordsOf(line.label)]];
  if (format === "chat") return turnsOf(line.messages);
  if (format === "text") return [["text", wordsOf(line.text)]];
  if (format === "completion") return [["prompt", wordsOf(line.prompt)], ["completion", wordsOf(line.completion)]];
  const [asked, better, worse] = format === "preference"
    ? [turnsOf(line.input?.messages), answerOf(line.preferred_output), answerOf(line.non_preferred_output)]
    : [[["prompt", wordsOf(line.prompt)]], wordsOf(line.chosen), wordsOf(line.rejected)];
  return [...asked, ["preferred", better], ["not preferred", worse]];
}

export default {
  template: `
    <div class="drop" :class="{over}" @dragover.prevent="over = true" @dragleave="over = false" @drop.prevent="dropped">
      <p>{{ words }}</p>
      <label class="button" tabindex="0" role="button" @keydown.enter="$refs.file.click()" @keydown.space.prevent="$refs.file.click()">Choose a file
        <input ref="file" class="hidden" type="file" accept=".jsonl,.json,.txt" :aria-label="label" @change="take($event.target.files[0])"></label>
      <p v-if="doing" class="muted small">{{ doing }}</p>
      <progress v-if="doing" :value="share" max="1" :aria-label="doing"></progress>
      <p v-if="found" role="status"><b>{{ name }}</b>: {{ found.lines }} {{ found.noun }}<span v-if="found.format">, {{ found.format }}</span></p>
      <ul v-if="found && found.problems.length" class="notice bad problems" role="alert">
        <li v-for="problem in found.problems">{{ problem }}</li></ul>
      <dl v-for="parts in (found ? found.shown : [])" class="example" tabindex="0">
        <template v-for="[who, text] in parts"><dt :class="{ good: who === 'preferred', bad: who === 'not preferred' }">{{ who }}</dt><dd>{{ text }}</dd></template>
      </dl>
    </div>`,
  props: { label: String, words: String, purpose: String, endpoints: Array },
  data: () => ({ over: false, found: null, name: "", doing: "", share: 0, sending: false }),
  mounted() {
    this.warn = (event) => { if (this.sending) event.preventDefault(); };
    window.addEventListener("beforeunload", this.warn);
  },
  unmounted() { window.removeEventListener("beforeunload", this.warn); },
  methods: {
    dropped(event) { this.over = false; this.take(event.dataTransfer.files[0]); },
    async take(file) {
      if (!file || this.doing) return;
      Object.assign(this, { name: file.name, found: null, share: 0, doing: "Checking the file" });
      try {
        this.found = await examine(file, READERS[this.purpose](this.endpoints), (share) => { this.share = share; });
      } catch {
        this.found = { format: "", lines: 0, noun: "lines", problems: ["The file could not be read."], shown: [] };
      }
      this.doing = "";
      this.$emit("examined", { problems: this.found.problems.length, format: this.found.format });
      if (!this.found.problems.length) this.send(file);
      this.$refs.file.value = "";
    },
    send(file) {
      const form = new FormData();
      form.append("purpose", this.purpose);
      form.append("file", file, file.name);
      const request = new XMLHttpRequest();
      request.upload.onprogress = (event) => { this.share = event.loaded / event.total; };
      request.onloadend = () => {
        Object.assign(this, { doing: "", sending: false });
        let document = {};
        try { document = JSON.parse(request.responseText); } catch { /* there was no response */ }
        this.$emit("verdict", { status: request.status, document });
      };
      Object.assign(this, { doing: "Uploading. Leaving this page would stop the upload.", share: 0, sending: true });
      request.open("POST", "/transfer/files");
      request.send(form);
    },
  },
};
