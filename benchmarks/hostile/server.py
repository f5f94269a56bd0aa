"""The server under attack: `loragate serve` with a tiny base model, of this checkout or of another commit."""

import json
import socket
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

from benchmarks.lib.product import ADMIN_KEY, Product, serving

CONTEXT = 131_072
TENANTS: dict[str, dict[str, int] | None] = {"guest": None, "attacker": None, "hoarder": {"max_storage_bytes": 1 << 20}}
_KV_TOKENS = 140_000
_STOP_SECONDS = 20
_CORPUS = ["The quick brown fox jumps over the lazy dog. What is the capital of France? It is Paris, of course."] * 3
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Server(Product):
    """A running server, and the keys of its tenants."""

    keys: Mapping[str, str]

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

    def client_of(self, tenant: str) -> httpx.Client:
        return self.client(self.keys[tenant])


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
    settings = {"LORAGATE_ADMIN_KEY": ADMIN_KEY, "LORAGATE_ENGINE__KV_CACHE_TOKENS": str(_KV_TOKENS)}
    if parts is not None:
        settings["PYTHONPATH"] = str(parts)
    with (
        tempfile.TemporaryDirectory(prefix="hostile") as name,
        serving(
            Path(name) / "data",
            *("--model", str(model)),
            settings=settings,
            folder=Path(name),
            log=Path(name) / "log",
            stop_seconds=_STOP_SECONDS,
        ) as product,
    ):
        keys = {tenant: product.add_tenant(tenant, limits) for tenant, limits in TENANTS.items()}
        yield Server(product.process, product.data_dir, keys)
