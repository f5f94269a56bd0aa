// A drop zone for the two files of an adapter and their signature, which are uploaded with progress. The page stays
// usable meanwhile; leaving it would stop the upload, so the browser asks for confirmation.
const WANTED = ["adapter_config.json", "adapter_model.safetensors"];
const SIGNATURE = "model.sig";

async function filesIn(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    for (const each of some) if (each.isFile) found.push(...(await filesIn(each)));
  }
}

function size(bytes) {
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  while (bytes >= 1000 && unit < 3) { bytes /= 1000; unit++; }
  return `${bytes.toPrecision(3)} ${units[unit]}`;
}

export default {
  template: `
    <div class="drop" :class="{over}" @dragover.prevent="over = true" @dragleave="over = false" @drop.prevent="dropped">
      <i class="q-icon material-icons-outlined" aria-hidden="true" style="font-size: 30px">upload_file</i>
      <p>Drop the two files saved by PEFT here, or their folder.</p>
      <div class="row-of">
        <label class="button" tabindex="0" role="button" @keydown.enter="$refs.files.click()" @keydown.space.prevent="$refs.files.click()">Choose files
          <input ref="files" class="hidden" type="file" multiple aria-label="The adapter's files" @change="chosen"></label>
        <label class="button" tabindex="0" role="button" @keydown.enter="$refs.folder.click()" @keydown.space.prevent="$refs.folder.click()">Choose a folder
          <input ref="folder" class="hidden" type="file" webkitdirectory aria-label="The adapter's folder" @change="chosen"></label>
      </div>
      <div class="files" aria-live="polite">
        <div v-for="name in wanted" :key="name"><code>{{ name }}</code>
          <span v-if="files[name]">{{ size(files[name].size) }}</span><span v-else class="muted">missing</span></div>
        <div v-if="files[signature]"><code>{{ signature }}</code> <span>{{ size(files[signature].size) }}</span></div>
      </div>
      <template v-if="busy">
        <progress :value="share" max="1" aria-label="Upload"></progress>
        <p role="status" class="muted small">{{ words }}</p>
      </template>
    </div>`,
  data: () => ({ over: false, files: {}, busy: false, share: 0, words: "", wanted: WANTED, signature: SIGNATURE }),
  mounted() {
    this.warn = (event) => { if (this.busy) event.preventDefault(); };
    window.addEventListener("beforeunload", this.warn);
  },
  unmounted() { window.removeEventListener("beforeunload", this.warn); },
  methods: {
    size,
    async dropped(event) {
      this.over = false;
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
      const folder = entries.length === 1 && entries[0].isDirectory ? entries[0].name : "";
      this.take((await Promise.all(entries.map(filesIn))).flat(), folder);
    },
    chosen(event) {
      const files = [...event.target.files];
      this.take(files, files[0]?.webkitRelativePath?.split("/")[0] || "");
      event.target.value = "";
    },
    take(files, folder) {
      if (this.busy) return;
      if (files.some((file) => file.name in this.files)) delete this.files[SIGNATURE]; // it is that of the previous files
      for (const file of files) if (file.name === SIGNATURE || WANTED.includes(file.name)) this.files[file.name] = file;
      this.$emit("picked", { folder, missing: WANTED.filter((name) => !this.files[name]) });
    },
    send(url, fields) {
      const form = new FormData();
      for (const [name, value] of Object.entries(fields)) form.append(name, value);
      for (const name of [...WANTED, SIGNATURE]) if (this.files[name]) form.append(name, this.files[name], name);
      const request = new XMLHttpRequest();
      request.upload.onprogress = (event) => {
        this.share = event.loaded / event.total;
        this.words = event.loaded < event.total
          ? `Uploading: ${size(event.loaded)} of ${size(event.total)}. Leaving this page would stop the upload.`
          : "Checking: the files are read, and the engine runs them once.";
      };
      request.onloadend = () => {
        this.busy = false;
        let document = {};
        try { document = JSON.parse(request.responseText); } catch { /* there was no response */ }
        if (request.status === 201) this.files = {};
        this.$emit("verdict", { status: request.status, document });
      };
      this.busy = true;
      this.share = 0;
      this.words = "Uploading. Leaving this page would stop the upload.";
      request.open("POST", url);
      request.send(form);
    },
  },
};
