"""The server under attack: `loragate serve` with a tiny base model, of this checkout or of another commit."""

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT = 131_072
TENANTS = {"guest": None, "attacker": None, "hoarder": {"max_storage_bytes": 1 << 20}}
_KV_TOKENS = 140_000
_READY = "loragate ready"
_STOP_SECONDS = 20
_ADMIN_KEY = "benchmark-admin-" + secrets.token_hex(16)
_CORPUS = ["The quick brown fox jumps over the lazy dog. What is the capital of France? It is Paris, of course."] * 3
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Server:
    """A running server, and the keys of its tenants."""

    process: psutil.Process
    data_dir: Path
    keys: Mapping[str, str]

    @property
    def runtime(self) -> dict[str, Any]:
        runtime: dict[str, Any] = json.loads((self.data_dir / "runtime.json").read_text())
        return runtime

    @property
    def port(self) -> int:
        return int(self.runtime["base_url"].rpartition(":")[2])

    @property
    def panel_port(self) -> int:
        return int(self.runtime["panel_url"].rpartition(":")[2])

    @property
    def gateway(self) -> psutil.Process:
        return psutil.Process(self.runtime["pids"]["gateway"][0])

    @property
    def panel(self) -> psutil.Process:
        return psutil.Process(self.runtime["pids"]["panel"])

    def processor_seconds(self) -> dict[str, float]:
        """Return the processor time of each part so far, with that of its children that have ended."""
        pids: dict[str, Any] = self.runtime["pids"] | {"gateway": self.gateway.pid}
        return {
            part: sum(psutil.Process(pids[part]).cpu_times()[:4]) for part in ("gateway", "engine", "finetune", "panel")
        }

    def wait_for_panel(self) -> None:
        """Wait until the panel accepts connections, which may be later than the gateway."""
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.panel_port), timeout=5):
                return
            time.sleep(0.1)
        raise SystemExit("the panel did not start")

    def client(self, tenant: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.keys[tenant]}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=60)


def build_model(folder: Path) -> Path:
    """Save a random Llama with a long context, and a tokenizer whose longest token has 128 characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_tokens([AddedToken("=" * 128, special=False)])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": _CHAT_TEMPLATE}))
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=-(-tokenizer.get_vocab_size() // 64) * 64,
            max_position_embeddings=CONTEXT,
            bos_token_id=0,
            eos_token_id=1,
            initializer_range=0.05,
        )
    ).save_pretrained(folder)
    return folder


@contextmanager
def running_server(model: Path, parts: Path | None) -> Iterator[Server]:
    """Run a server within the block, with an empty data directory. `parts` is PYTHONPATH's folder of another commit."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LORAGATE_")}
    environment |= {
        "LORAGATE_ADMIN_KEY": _ADMIN_KEY,
        "LORAGATE_ENGINE__KV_CACHE_TOKENS": str(_KV_TOKENS),
    }
    if parts is not None:
        environment["PYTHONPATH"] = str(parts)
    ports = ("--port", "0", "--grpc-port", "0", "--panel-port", "0")
    with tempfile.TemporaryDirectory(prefix="hostile") as folder:
        data_dir, log = Path(folder) / "data", Path(folder) / "log"
        command = [sys.executable, "-m", "loragate.cli.main", "serve", "--model", str(model), *ports]
        with log.open("wb") as errors:
            child = subprocess.Popen(
                [*command, "--data-dir", str(data_dir)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                cwd=folder,
            )
        try:
            _wait_until_ready(child, log)
            yield _with_tenants(psutil.Process(child.pid), data_dir)
        finally:
            _stop(child)


def _wait_until_ready(child: "subprocess.Popen[str]", log: Path) -> None:
    assert child.stdout is not None
    while (line := child.stdout.readline()).strip() != _READY:
        if not line:
            raise SystemExit(f"the server ended with status {child.wait()}: {log.read_text()[-3000:]}")


def _with_tenants(process: psutil.Process, data_dir: Path) -> Server:
    keys = {"admin": _ADMIN_KEY}
    server = Server(process, data_dir, keys)
    with server.client("admin") as admin:
        for name, limits in TENANTS.items():
            body = {"name": name} | ({"limits": limits} if limits else {})
            tenant = admin.post("/admin/v1/tenants", json=body).raise_for_status().json()
            key = admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json={"name": "benchmark"})
            keys[name] = key.raise_for_status().json()["secret"]
    return server


def _stop(child: "subprocess.Popen[str]") -> None:
    """Stop the server; kill what has not ended in time, for example a trainer that hangs."""
    family = psutil.Process(child.pid).children(recursive=True)
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_STOP_SECONDS)
    for process in (*family, child):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
