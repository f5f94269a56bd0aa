"""Base models in every format that is served: dtypes, shards, and quantized by bitsandbytes at load or before."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import add_adapter, greedy, make_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from loragate.engine.local import LocalEngine
from loragate.engine.model.errors import ModelRejected
from loragate.engine.startup import build

CONFIGS = {
    "nf4": BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    ),
    "int8": BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0),
}
PROMPTS = [[5, 9, 13, 21, 34], list(range(3, 90)), [7], [11, 12, 13] * 9]


def load(directory: Path, **options: Any) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", **options
    )
    return model.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model wide enough to be quantized in blocks of 64, and adapters, one of which reads its weights (DoRA)."""
    root = tmp_path_factory.mktemp("formats")
    model = make_model("llama", hidden_size=64, intermediate_size=128)
    model.save_pretrained(root / "base")
    add_adapter(model, root / "r4", 1, r=4)
    add_adapter(model, root / "r64", 2, r=64)
    add_adapter(model, root / "dora", 3, r=8, use_dora=True)
    return root


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Callable[..., LocalEngine]]:
    engines = []

    def start(base: Path, **config: Any) -> LocalEngine:
        adapters = {name: folder / name for name in ("r4", "r64", "dora")}
        settings = {"threads": 1, "block_size": 8, "kv_cache_tokens": 1024} | config
        engines.append(LocalEngine(base, tmp_path / "cache", adapters, **settings))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def check(engine: LocalEngine, model: PreTrainedModel, folder: Path) -> None:
    """Check that a mixed batch equals PEFT on the same model, one request at a time."""
    in_int8 = any(parameter.dtype == torch.int8 for parameter in model.parameters())
    names = [None, "r4", "r64", "r4" if in_int8 else "dora"]  # on int8, bitsandbytes fails in PEFT's DoRA
    requests = [engine.submit(prompt, name, max_tokens=8) for prompt, name in zip(PROMPTS, names, strict=True)]
    for request, prompt, name in zip(requests, PROMPTS, names, strict=True):
        engine.result(request)
        assert engine.tokens(request) == greedy(model, prompt, 8, name and folder / name), (name, len(prompt))


@pytest.mark.parametrize("quantization", sorted(CONFIGS))
def test_quantized_at_load(quantization: str, folder: Path, start: Callable[..., LocalEngine]) -> None:
    engine = start(folder / "base", quantization=quantization)
    assert engine.loaded.base.is_quantized, "the self-check allows for rounding then"
    check(engine, load(folder / "base", quantization_config=CONFIGS[quantization]), folder)


@pytest.mark.parametrize("quantization", sorted(CONFIGS))
def test_saved_quantized(quantization: str, folder: Path, tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    load(folder / "base", quantization_config=CONFIGS[quantization]).save_pretrained(tmp_path / "saved")
    engine = start(tmp_path / "saved")
    check(engine, load(tmp_path / "saved"), folder)
    with pytest.raises(ModelRejected, match="already quantized"):
        start(tmp_path / "saved", quantization="nf4")


@pytest.mark.parametrize("quantization", sorted(CONFIGS))
def test_steps_of_a_quantized_base_are_recorded(
    quantization: str, folder: Path, start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "recorder", lambda device: lambda launches: launches)
    engine = start(folder / "base", quantization=quantization, max_batch_tokens=40, max_batch_size=4)
    check(engine, load(folder / "base", quantization_config=CONFIGS[quantization]), folder)
    assert engine.core.graphs.replayed
    assert not engine.core.graphs.failed


def test_int8_rows_do_not_depend_on_their_neighbours(folder: Path, start: Callable[..., LocalEngine]) -> None:
    """They would with outlier columns chosen over the batch, which is bitsandbytes' default."""
    engine = start(folder / "base", quantization="int8")
    alone = [engine.generate(prompt, "r4", max_tokens=12) for prompt in PROMPTS]
    requests = [engine.submit(prompt, "r4", max_tokens=12) for prompt in PROMPTS]
    others = [engine.submit([1 + i] * 5, max_tokens=12) for i in range(6)]
    for request in (*requests, *others):
        engine.result(request)
    assert [engine.tokens(request) for request in requests] == alone
    assert all(
        module.state.threshold == 0.0
        for module in engine.loaded.base.model.modules()
        if type(module).__name__ == "Linear8bitLt"
    )


def test_shards(folder: Path, tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    model = load(folder / "base")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="40KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 3
    check(start(tmp_path / "sharded"), model, folder)


@pytest.mark.parametrize("saved", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_precision_checkpoint_computed_in_single_precision(
    saved: torch.dtype, folder: Path, tmp_path: Path, start: Callable[..., LocalEngine]
) -> None:
    load(folder / "base").to(saved).save_pretrained(tmp_path / "half")
    engine = start(tmp_path / "half", dtype="float32")
    check(engine, load(tmp_path / "half"), folder)


def test_bfloat16_stays_close(folder: Path, start: Callable[..., LocalEngine]) -> None:
    """Greedy tokens may differ at near-ties; the logprobs of the first token must be close."""
    engine = start(folder / "base", dtype="bfloat16")
    model = load(folder / "base")
    for prompt in PROMPTS:
        request = engine.submit(prompt, max_tokens=1, top_logprobs=0)
        (output,) = engine.result(request)
        assert output.logprob is not None
        with torch.inference_mode():
            expected = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        assert abs(output.logprob.logprob - float(expected[output.token])) < 0.5


def test_an_unsupported_quantization_is_rejected_with_its_name(
    folder: Path, tmp_path: Path, start: Callable[..., LocalEngine]
) -> None:
    model = load(folder / "base")
    model.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    model.config.save_pretrained(tmp_path / "gptq")
    (tmp_path / "gptq" / "model.safetensors").write_bytes((folder / "base" / "model.safetensors").read_bytes())
    with pytest.raises(ModelRejected, match=r"gptq.*engine\.quantization=nf4"):
        start(tmp_path / "gptq")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_packed_weights_are_not_in_memory_twice(tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    model = make_model("llama", hidden_size=256, intermediate_size=2048)
    model.save_pretrained(tmp_path / "large")
    engine = start(tmp_path / "large")
    mapped, resident = _mapping(tmp_path / "large" / "model.safetensors")
    assert mapped > 20 << 20
    assert resident < mapped // 4
    engine.generate([5, 9], max_tokens=2)
    assert _mapping(tmp_path / "large" / "model.safetensors")[1] < mapped // 4, "serving does not touch them"


def _mapping(path: Path) -> tuple[int, int]:
    """Return how many bytes of a file this process has mapped, and how many of them are in memory."""
    sizes = {"Size:": 0, "Rss:": 0}
    ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and len(rest) >= 4:
            ours = rest[-1] == str(path)
        elif ours and first in sizes:
            sizes[first] += int(rest[0]) << 10
    return sizes["Size:"], sizes["Rss:"]


@pytest.mark.parametrize("kv_cache_dtype", ["int8", "fp8"])
def test_an_eight_bit_kv_cache(kv_cache_dtype: str, folder: Path, start: Callable[..., LocalEngine]) -> None:
    """A row depends on its own tokens only, also where keys and values return from the host tier."""
    engine = start(folder / "base", kv_cache_dtype=kv_cache_dtype, kv_cache_tokens=128)
    alone = [engine.generate(prompt, "r4", max_tokens=8) for prompt in PROMPTS]
    for _ in range(3):
        requests = [engine.submit(prompt, "r4", max_tokens=8, cache_salt=b"one") for prompt in PROMPTS]
        for request, expected in zip(requests, alone, strict=True):
            engine.result(request)
            assert engine.tokens(request) == expected
    prefix = engine.core.blocks.prefix
    assert prefix is not None
    assert prefix.counters.total.from_host > 0
    assert engine.loaded.base.kv_bytes_per_token(torch.int8) < engine.loaded.base.kv_bytes_per_token() / 2
