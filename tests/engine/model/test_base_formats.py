"""Base models in every format that is served: dtypes, shards, and quantized by bitsandbytes at load or before."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mixed_batches import PROMPTS, check_mixed_batch, load
from tiny_models import make_model
from transformers import BitsAndBytesConfig

from loragate.engine.local import LocalEngine
from loragate.engine.model.errors import ModelRejected
from loragate.engine.startup import recorded_steps

CONFIGS = {
    "nf4": BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    ),
    "int8": BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0),
}


@pytest.fixture(params=sorted(CONFIGS))
def quantization(request: pytest.FixtureRequest, adapters: dict[str, Path]) -> str:
    if request.param == "int8":
        del adapters["dora"]  # bitsandbytes fails in PEFT's DoRA
    return str(request.param)


def test_quantized_at_load(
    quantization: str, folder: Path, adapters: dict[str, Path], start: Callable[..., LocalEngine]
) -> None:
    engine = start(folder / "base", quantization=quantization)
    assert engine.loaded.base.is_quantized, "the self-check allows for rounding then"
    check_mixed_batch(engine, load(folder / "base", quantization_config=CONFIGS[quantization]), adapters)


def test_saved_quantized(
    quantization: str, folder: Path, adapters: dict[str, Path], tmp_path: Path, start: Callable[..., LocalEngine]
) -> None:
    load(folder / "base", quantization_config=CONFIGS[quantization]).save_pretrained(tmp_path / "saved")
    engine = start(tmp_path / "saved")
    check_mixed_batch(engine, load(tmp_path / "saved"), adapters)
    with pytest.raises(ModelRejected, match="already quantized"):
        start(tmp_path / "saved", quantization="nf4")


def test_steps_of_a_quantized_base_are_recorded(
    quantization: str,
    folder: Path,
    adapters: dict[str, Path],
    start: Callable[..., LocalEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded_steps, "recorder", lambda device: lambda launches: launches)
    engine = start(folder / "base", quantization=quantization, max_batch_tokens=40, max_batch_size=4)
    check_mixed_batch(engine, load(folder / "base", quantization_config=CONFIGS[quantization]), adapters)
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


def test_shards(folder: Path, adapters: dict[str, Path], tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    model = load(folder / "base")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="40KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 3
    check_mixed_batch(start(tmp_path / "sharded"), model, adapters)


@pytest.mark.parametrize("saved", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_precision_checkpoint_computed_in_single_precision(
    saved: torch.dtype,
    folder: Path,
    adapters: dict[str, Path],
    tmp_path: Path,
    start: Callable[..., LocalEngine],
) -> None:
    load(folder / "base").to(saved).save_pretrained(tmp_path / "half")
    engine = start(tmp_path / "half", dtype="float32")
    check_mixed_batch(engine, load(tmp_path / "half"), adapters)


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_packed_weights_are_not_in_memory_twice(tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    model = make_model("llama", hidden_size=256, intermediate_size=2048, num_hidden_layers=3)
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
