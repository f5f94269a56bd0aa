"""The engine on the Triton kernels, here in Triton's interpreter, generates the same tokens as PEFT."""

import random
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from moe_adapters import ADAPTERS as MIXTURE_ADAPTERS
from rounded_models import rounding
from thinned import thinned
from tiny_models import VOCABULARY, add_adapter, greedy, make_model
from transformers import PreTrainedModel

from loragate.engine.local import LocalEngine
from loragate.engine.startup import build, recorded_steps, recording_check, self_check
from loragate.kernels import gpu, segmented_experts, segmented_lora
from loragate.kernels.gpu import decode_attention, gated, prefill_attention, quantize_rows, rms_norm, rotary

ADAPTERS = {
    "r4": {"r": 4},
    "r64": {"r": 64},
    "dora": {"r": 8, "use_dora": True},
    "biases": {"r": 8, "bias": "lora_only", "lora_bias": True},
    "whole": {"r": 4, "target_modules": ["q_proj", "up_proj"], "modules_to_save": ["lm_head"]},
}

FEW: dict[str, Any] = {"max_batch_tokens": 16, "max_batch_size": 4, "max_lora_rank": 8}
SMALL = {"num_hidden_layers": 2}
TOKENS = 3  # the interpreter takes a second for each step

check_recordings = recording_check.discard_wrong

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="patches kernels onto the CPU")


@pytest.fixture(
    scope="module", params=["llama", *(pytest.param(name, marks=pytest.mark.long) for name in ("gemma2", "qwen2"))]
)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class OneStream:
    """A second stream whose launches are done at once."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def forked(self) -> AbstractContextManager[None]:
        self._seen.append("fork")
        return nullcontext()

    def join(self) -> None:
        self._seen.append("join")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs every device on the kernels and counts their launches.

    The checks at load use them as well, and take the interpreter longer than the tests.
    """
    seen: list[str] = []
    monkeypatch.setattr(recording_check, "discard_wrong", lambda *_: None)
    monkeypatch.setattr(self_check, "reference", lambda *_: None)
    monkeypatch.setattr(self_check, "verify", lambda *_: None)
    monkeypatch.setattr(self_check, "cap_from_twin", lambda _: (None, ""))
    attend, add = decode_attention.attend_into, segmented_lora.add_segments

    def add_segments(*args: Any, dependent: bool) -> None:
        seen.extend(["lora", "dependent"][: 1 + dependent])  # the interpreter launches nothing early
        add(*args)

    prefill = prefill_attention._attend
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    monkeypatch.setattr(decode_attention, "attend_into", lambda *a: (seen.append("attention"), attend(*a))[1])
    monkeypatch.setattr(prefill_attention, "_attend", lambda *a: (seen.append("prefill"), prefill(*a))[1])
    monkeypatch.setattr(segmented_lora, "add_segments", add_segments)
    monkeypatch.setattr(gpu, "launches_dependents", lambda device: True)
    matmuls = segmented_lora.add_segment_by_segment
    monkeypatch.setattr(
        segmented_lora, "add_segment_by_segment", lambda *a: (seen.extend(["matmuls"] * len(a[2])), matmuls(*a))[1]
    )
    turn, gate, add_norm = rotary.rotate_and_write, gated.gated, rms_norm.add_rms_norm
    monkeypatch.setattr(rms_norm, "add_rms_norm", lambda *a: (seen.append("sum"), add_norm(*a))[1])
    monkeypatch.setattr(rotary, "rotate_and_write", lambda *a: (seen.append("rotary"), turn(*a))[1])
    monkeypatch.setattr(gated, "gated", lambda *a: (seen.append("gated"), gate(*a))[1])
    return seen


@pytest.mark.long
def test_a_mixed_batch_equals_peft(architecture: str, tmp_path: Path, launches: list[str]) -> None:
    model = make_model(architecture, **SMALL)
    adapters = {
        name: add_adapter(model, tmp_path / name, seed, **options)
        for seed, (name, options) in enumerate(ADAPTERS.items())
    }
    check(model, adapters, [None, *adapters, "r64"], tmp_path)
    assert set(launches) - {"sum"} == {"attention", "prefill", "lora", "rotary", "gated"}
    assert ("sum" in launches) == (architecture != "gemma2")


def test_an_adapter_with_its_own_norms_equals_peft(tmp_path: Path, launches: list[str]) -> None:
    """Its norms replace those that are computed with the sums before them."""
    model = make_model("llama", num_hidden_layers=1)
    norms = ["post_attention_layernorm", "norm"]
    adapters = {"norms": add_adapter(model, tmp_path / "norms", 3, r=4, modules_to_save=norms)}
    check(model, adapters, [None, "norms"], tmp_path)
    assert "sum" in launches


@pytest.fixture
def quantized_alone(launches: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists, once launches are counted, what was launched last before rows were quantized by a launch of their own."""
    before: list[str] = []
    quantize = quantize_rows.quantize_rows
    monkeypatch.setattr(quantize_rows, "quantize_rows", lambda x: (before.extend(launches[-1:]), quantize(x))[1])
    return before


@pytest.mark.long
@pytest.mark.parametrize("played", [False, True])
def test_weights_in_fp8_equal_peft_on_rounded_ones(
    played: bool, tmp_path: Path, launches: list[str], quantized_alone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms and gates quantize what they make, so that only attention's output is quantized by itself."""
    if played:
        monkeypatch.setattr(recorded_steps, "recorder", lambda device: lambda launch: launch)
    model = make_model("llama", num_hidden_layers=1)
    adapters = {name: add_adapter(model, tmp_path / name, seed, r=4) for seed, name in enumerate("ab")}
    engine = check(model, adapters, [None, *adapters], tmp_path, rounding(model), quantization="fp8", **FEW)
    assert (engine.core.graphs.replayed > 0) == played
    assert set(launches) == {"attention", "prefill", "lora", "rotary", "gated", "sum"}
    assert set(quantized_alone) <= {"attention", "prefill"}
    assert len(quantized_alone) == launches.count("gated")


@pytest.mark.long
def test_weights_in_fp8_read_the_rows_of_an_adapters_own_norm(
    tmp_path: Path, launches: list[str], quantized_alone: list[str]
) -> None:
    """The kernel of the base model's norm did not make them."""
    model = make_model("llama", num_hidden_layers=1)
    norms = ["input_layernorm", "post_attention_layernorm"]
    adapters = {"norms": add_adapter(model, tmp_path / "norms", 3, r=4, modules_to_save=norms)}
    check(model, adapters, [None, "norms"], tmp_path, rounding(model), quantization="fp8", **FEW)
    assert "sum" in quantized_alone


@pytest.mark.parametrize("option", thinned(["", "dependent_launch", "side_stream"], fast={""}))
def test_steps_of_fixed_sizes_equal_peft(
    option: str, tmp_path: Path, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are captured and replayed as on a GPU."""
    monkeypatch.setattr(build, "SideStream", lambda device: OneStream(launches))
    options = FEW | ({f"lora_{option}": True} if option else {})
    monkeypatch.setattr(recorded_steps, "recorder", lambda device: lambda launch: launch)
    model = make_model("llama", num_hidden_layers=1)
    adapters = {
        name: add_adapter(model, tmp_path / name, seed, **ADAPTERS[name]) for seed, name in enumerate(("r4", "dora"))
    }
    engine = check(model, adapters, [None, *adapters], tmp_path, **options)
    assert engine.core.graphs.replayed > 0
    assert engine.core.graphs.launched == 0
    beside = option == "side_stream"
    lora = {"fork", "join"} if beside else {"lora", "dependent"} if option else {"lora"}
    assert set(launches) == {"attention", "prefill", *lora, "rotary", "gated", "sum"}
    assert len({launches.count(each) for each in lora}) == 1


@pytest.mark.long
def test_long_segments_by_matmuls_equal_peft(tmp_path: Path, launches: list[str]) -> None:
    """Three prompts are shorter than the option says: their adapters, and all adapters while decoding, go through the
    kernels."""
    model = make_model("llama", num_hidden_layers=1)
    kinds = ADAPTERS | {"q and v": {"r": 16, "target_modules": ["q_proj", "v_proj"]}}
    names = ("r4", "whole", "dora", "q and v", "r64", "biases")
    adapters = {name: add_adapter(model, tmp_path / name, seed, **kinds[name]) for seed, name in enumerate(names)}
    unhurried = 10**9  # a slow step must not cut prompts into chunks
    options = {"lora_gemm_rows": 9, "lora_dependent_launch": True}
    check(model, adapters, names, tmp_path, adapter_slots=6, max_step_ms=unhurried, **options)
    assert launches.count("dependent") == launches.count("lora")
    assert launches.count("matmuls") == sum({"dora": 4, "q and v": 1, "biases": 4}.values()), "of the fused linears"
    assert "lora" in launches


@pytest.mark.long
@pytest.mark.parametrize("played", thinned([False, True], fast={True}))
@pytest.mark.parametrize("mixture", ["gpt_oss", "mixtral"])
def test_experts_equal_peft(
    mixture: str, played: bool, tmp_path: Path, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are sorted on the device: the host never reads the router's choices."""
    if played:
        monkeypatch.setattr(recorded_steps, "recorder", lambda device: lambda launch: launch)
        monkeypatch.setattr(recording_check, "discard_wrong", check_recordings)
    route = segmented_experts.route_on_device
    monkeypatch.setattr(segmented_experts, "route", None)
    monkeypatch.setattr(segmented_experts, "route_on_device", lambda *a: (launches.append("experts"), route(*a))[1])
    model = make_model(mixture, num_hidden_layers=1, layer_types=["sliding_attention"])
    names = ("experts", "router")
    adapters = {
        name: add_adapter(model, tmp_path / name, seed, std=0.2, **MIXTURE_ADAPTERS[name](model))
        for seed, name in enumerate(names)
    }
    engine = check(model, adapters, [None, *names], tmp_path, max_batch_tokens=16, max_batch_size=4, max_lora_rank=16)
    assert set(launches) >= {"attention", "prefill", "lora", "experts"}
    assert (engine.core.graphs.recorded, engine.core.graphs.failed) == (8 if played else 0, 0)


def check(
    model: PreTrainedModel,
    adapters: dict[str, Path],
    names: list[str | None],
    folder: Path,
    expected: PreTrainedModel | None = None,
    **config: Any,
) -> LocalEngine:
    """Serve one request for each of the names in one batch, whose tokens are those that PEFT computes with the model,
    or with the `expected` one; return the closed engine."""
    model.save_pretrained(folder / "base")
    settings = {"threads": 1, "adapter_slots": 3, "block_size": 8, "kv_cache_tokens": 512, "max_model_len": 256}
    engine = LocalEngine(folder / "base", folder / "cache", adapters, **settings | config)
    rng = random.Random(1)
    lengths = (1, 5, 30, 12, 3, 20, 9)[: len(names)]
    prompts = [[rng.randrange(VOCABULARY) for _ in range(length)] for length in lengths]
    try:
        requests = [engine.submit(prompt, name, max_tokens=TOKENS) for prompt, name in zip(prompts, names, strict=True)]
        for request in requests:
            engine.result(request)
        for request, prompt, name in zip(requests, prompts, names, strict=True):
            found = engine.tokens(request)
            assert found == greedy(expected or model, prompt, TOKENS, name and adapters[name], draft=found), name
    finally:
        engine.close()
    return engine
