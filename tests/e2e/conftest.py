"""Fixtures: a real server with a tiny model, shared by the tests that do not break it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from running_server import RunningServer, client, ok, upload
from tiny_models import add_adapter, make_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
)


@dataclass(frozen=True)
class Tiny:
    """A transformers model, its folder, and its adapters' folders by name."""

    model: PreTrainedModel
    base: Path
    adapters: dict[str, Path]


@dataclass(frozen=True)
class Tenants:
    """A running server and two tenants on it; each has uploaded two of the tiny adapters."""

    server: RunningServer
    acme: httpx.Client
    globex: httpx.Client
    acme_key: str


def save_tokenizer(directory: Path, vocabulary: int) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["user: assistant: what is the capital of France?"], trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(directory)


@pytest.fixture(scope="package")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    root = tmp_path_factory.mktemp("model")
    model = make_model("llama", vocab_size=320)
    model.save_pretrained(root / "tiny-llama")
    save_tokenizer(root / "tiny-llama", 320)
    adapters = {name: add_adapter(model, root / name, seed, r=4) for seed, name in enumerate("abcd")}
    return Tiny(model, root / "tiny-llama", adapters)


@pytest.fixture(scope="package")
def server(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(
        tmp_path_factory.mktemp("data"), "--model", str(tiny.base), LORAGATE_ENGINE__ADAPTER_SLOTS="2"
    )
    yield running
    running.stop()


@pytest.fixture(scope="package")
def tenants(server: RunningServer, tiny: Tiny) -> Iterator[Tenants]:
    keys = [server.add_tenant(name) for name in ("acme", "globex")]
    with client(server.base_url, keys[0]) as acme, client(server.base_url, keys[1]) as globex:
        for tenant, names in ((acme, "ab"), (globex, "cd")):
            for name in names:
                ok(upload(tenant, name, tiny.adapters[name]))
        ok(upload(globex, "a", tiny.adapters["d"]))  # the same name as acme's, another adapter
        yield Tenants(server, acme, globex, keys[0])
