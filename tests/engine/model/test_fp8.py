"""Weights in fp8, quantized at load: how far results are from the unquantized ones, and what is rejected."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch
from mixed_batches import check_mixed_batch, load
from quantized_checkpoints import set_quantization
from rounded_models import rounded, rounding
from thinned import thinned
from tiny_models import make_model
from tokenizers import Tokenizer
from torch import nn

from loragate.demo import shipped_assets
from loragate.demo.corpus import base_samples
from loragate.demo.tokenizer import encode
from loragate.engine.layers.fp8_linear import Fp8Linear, quantize_linears
from loragate.engine.layers.gated_mlp import GatedMlp
from loragate.engine.layers.lora_linear import weight_and_bias
from loragate.engine.layers.rms_norm import FusedNorm
from loragate.engine.layers.scaled_linear import ScaledLinear
from loragate.engine.local import LocalEngine
from loragate.engine.model import fp8_loading
from loragate.engine.model.base_model import prepare
from loragate.engine.model.errors import ModelRejected
from loragate.engine.model.fp8_loading import check_fp8
from loragate.engine.model.quantized_loading import QuantizationRejected
from loragate.engine.startup import recorded_steps, self_check
from loragate.kernels import gpu
from loragate.kernels.packed_linear import BLOCK_ROWS

CPU, GPU = torch.device("cpu"), torch.device("cuda")
E4M3 = torch.float8_e4m3fn


def test_a_mixed_batch_equals_peft_on_rounded_weights_and_inputs(
    folder: Path, adapters: Mapping[str, Path], start: Callable[..., LocalEngine]
) -> None:
    """Adapters read inputs that are not rounded."""
    engine = start(folder / "base", quantization="fp8")
    assert engine.loaded.base.is_quantized, "the self-check allows for rounding then"
    check_mixed_batch(engine, rounding(load(folder / "base")), adapters, tie=0.2)


@pytest.mark.parametrize("family", thinned(["llama", "qwen2", "qwen3", "gemma2", "phi3"], fast={"llama", "qwen2"}))
@torch.inference_mode()
def test_logits_are_those_of_rounded_weights_and_inputs(family: str) -> None:
    """Of most rows: in others, the last bit of an input decides between two numbers. Random weights as small as those
    that models start with let all rows stay close to the unquantized ones too."""
    model = make_model(family, hidden_size=64, intermediate_size=128, initializer_range=0.02)
    lengths = 1, 5, 17, 40
    unquantized, expected = self_check.reference(model, lengths), self_check.reference(rounding(model), lengths)
    quantize_linears(model, CPU, model.get_output_embeddings())
    base = prepare(model)
    assert float(self_check.errors(base, expected).median()) < 1e-5
    error = self_check.errors(base, unquantized)
    assert float(error.median()) > 0.02
    assert float(error.max()) < 0.15


@torch.inference_mode()
def test_a_trained_model_and_its_adapters_stay_close() -> None:
    """docs/performance.md states these errors."""
    assets = shipped_assets()
    model = load(assets.model_dir)
    prompts = self_check.random_prompts(model.config, (60,)) + tuple(samples(assets.model_dir, 20))
    logits = [model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0] for prompt in prompts]
    quantize_linears(model, CPU, model.get_output_embeddings())
    error = self_check.errors(prepare(model), self_check.Reference(prompts, tuple(logits)))
    assert float(error.median()) < 0.06
    assert float(error.max()) < 0.3


@pytest.mark.long
def test_tokens_of_a_trained_models_adapters_are_close(tmp_path: Path) -> None:
    assets = shipped_assets()
    adapters = {name: folder for tenant in assets.tenants for name, folder in tenant.adapters.items()}
    asked = list(zip(samples(assets.model_dir, 24), cycle([None, *adapters]), strict=False))
    tokens = []
    for quantization in ("none", "fp8"):
        engine = LocalEngine(
            assets.model_dir, tmp_path, adapters, quantization=quantization, threads=1, kv_cache_tokens=4096
        )
        requests = [engine.submit(prompt, adapter, max_tokens=12) for prompt, adapter in asked]
        for request in requests:
            engine.result(request)
        tokens += [[token for request in requests for token in engine.tokens(request)]]
        engine.close()
    same = sum(map(int.__eq__, *tokens)) / len(tokens[0])
    assert 0.88 < same < 1


def samples(model_dir: Path, count: int) -> Iterator[tuple[int, ...]]:
    """Yield questions that the demo's model was not trained on."""
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    for sample in islice(base_samples(1_000_003), count):
        ids, in_answer = encode(tokenizer, sample)
        yield tuple(ids[: in_answer.index(True)])


def test_a_decoding_rows_bits_do_not_depend_on_the_batch(folder: Path, start: Callable[..., LocalEngine]) -> None:
    engine = start(folder / "base", quantization="fp8")

    def asked(token: int) -> int:
        return engine.submit([token], "r4", max_tokens=8, top_logprobs=0)

    def found(request: int) -> list[tuple[int | None, float]]:
        return [(each.token, each.logprob.logprob) for each in engine.result(request) if each.logprob is not None]

    alone = [found(asked(token)) for token in range(5, 12)]
    requests = [asked(token) for token in range(5, 12)]
    assert [found(request) for request in requests] == alone
    assert all(len(each) == 8 for each in alone)


def test_steps_are_recorded(
    folder: Path,
    adapters: Mapping[str, Path],
    start: Callable[..., LocalEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded_steps, "recorder", lambda device: lambda launches: launches)
    engine = start(folder / "base", quantization="fp8", max_batch_tokens=40, max_batch_size=4)
    check_mixed_batch(engine, rounding(load(folder / "base")), adapters, tie=0.2)
    assert engine.core.graphs.replayed
    assert not engine.core.graphs.failed


@torch.inference_mode()
def test_only_the_quantized_weights_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: a module's weight is a view of the fused one, and the head stays as it is."""
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    model = make_model("qwen2", hidden_size=64, intermediate_size=128).to(torch.bfloat16)
    before = {name: module.weight.data for name, module in model.named_modules() if type(module) is nn.Linear}
    assert quantize_linears(model, CPU, model.get_output_embeddings()) == 7 * 2
    base = prepare(model)
    groups = [group for group in base.groups if isinstance(group.linear, ScaledLinear)]
    assert [len(group.members) for group in groups] == 2 * [3, 1, 2, 1]
    for group in groups:
        fused = group.linear._weight
        assert fused.dtype == E4M3
        for member in group.members:
            assert isinstance(member.base, Fp8Linear)
            own = member.base.weight.data
            assert own.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr()
            assert torch.equal(weight_and_bias(member.base)[0], rounded(before[member.name]))
    large = [p for p in model.parameters() if p.ndim == 2 and p.dtype != E4M3]
    assert len(large) == 2, "the embedding and the head"


@pytest.mark.parametrize("batch_invariant", [False, True])
@torch.inference_mode()
def test_norms_and_gates_quantize_what_products_in_fp8_read(
    batch_invariant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where products have a fixed number of rows, these are quantized with the rows that fill them up."""
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    model = make_model("qwen3", hidden_size=64, intermediate_size=128, num_hidden_layers=1)
    quantize_linears(model, CPU, model.get_output_embeddings())
    base = prepare(model, batch_invariant=batch_invariant)
    quantizing = {
        name.removeprefix("model.layers.0.")
        for name, module in base.model.named_modules()
        if (isinstance(module, FusedNorm) and module.kind.quantizes)
        or (isinstance(module, GatedMlp) and module._quantizes)
    }
    assert quantizing == (set() if batch_invariant else {"input_layernorm", "post_attention_layernorm", "mlp"})
    group = base.groups_by_module["model.layers.0.self_attn.q_proj"]
    rows: list[int] = []
    product = ScaledLinear.product
    monkeypatch.setattr(ScaledLinear, "product", lambda *a: (rows.append(a[1].numbers.shape[0]), product(*a))[1])
    group._base(x := torch.randn(1, 5, 64), x[0])
    assert rows == [BLOCK_ROWS if batch_invariant else 5]


@pytest.mark.parametrize(
    ("capability", "triton", "dtype", "words"),
    [
        ((8, 0), True, torch.bfloat16, r"compute capability 8\.9 or higher.* this one has 8\.0\. Use nf4 or int8"),
        ((9, 0), False, torch.bfloat16, "needs triton on a GPU"),
        ((9, 0), True, torch.float16, r"not in float16: set engine\.dtype=bfloat16"),
        ((8, 9), True, torch.float32, r"not in float32: set engine\.dtype=bfloat16"),
    ],
)
def test_gpus_and_types_without_such_products_are_rejected(
    capability: tuple[int, int], triton: bool, dtype: torch.dtype, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(gpu, "available", lambda: triton)
    with pytest.raises(QuantizationRejected, match=words):
        check_fp8(GPU, dtype)


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0)])
def test_other_gpus_are_accepted(capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(gpu, "available", lambda: True)
    check_fp8(GPU, torch.bfloat16)


@pytest.mark.parametrize(
    ("family", "words"), [("mixtral", "does not quantize experts"), ("gpt2", "finds no linear layer")]
)
def test_models_whose_weights_are_elsewhere_are_rejected(
    family: str, words: str, tmp_path: Path, start: Callable[..., LocalEngine]
) -> None:
    make_model(family).save_pretrained(tmp_path / "base")
    with pytest.raises(ModelRejected, match=f"base cannot be served: .*{re.escape(words)}"):
        start(tmp_path / "base", quantization="fp8")


def test_a_quantized_checkpoint_is_rejected(folder: Path, tmp_path: Path, start: Callable[..., LocalEngine]) -> None:
    load(folder / "base").save_pretrained(tmp_path / "saved")
    set_quantization(tmp_path / "saved", {"quant_method": "mxfp4"})
    with pytest.raises(ModelRejected, match=r"already quantized \(mxfp4\); leave engine\.quantization at none"):
        start(tmp_path / "saved", quantization="fp8")


def test_the_check_of_the_device_comes_before_the_weights(
    folder: Path, start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejected(*_: object) -> None:
        raise QuantizationRejected("not here")

    monkeypatch.setattr("loragate.engine.model.base_model.check_fp8", rejected)
    monkeypatch.setattr(fp8_loading, "quantize_linears", None)
    with pytest.raises(ModelRejected, match="base cannot be served: not here"):
        start(folder / "base", quantization="fp8")
