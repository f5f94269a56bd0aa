"""What is captured on a GPU, tested without one.

Meta tensors, which have a shape and a device but no values, go through models with our kernels in them. Any read of a
value from such a device, or copy of one from the host, fails.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulated_gpu
import torch
from thinned import thinned
from tiny_models import make_model
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from loragate.engine.config import EngineConfig
from loragate.engine.execution.model_runner import LastTokens, forward
from loragate.engine.execution.packing import PackedRows, SegmentCache, build_batch, decode_first
from loragate.engine.execution.padded_step import sizes
from loragate.engine.execution.step_graphs import Launches, StepGraphs
from loragate.engine.layers.experts import ExpertProjection
from loragate.engine.layers.fp8_linear import quantize_linears
from loragate.engine.layers.scaled_linear import ScaledLinear
from loragate.engine.model.base_model import BaseModel, prepare
from loragate.engine.sampling.grammar_mask import TokenMask
from loragate.engine.sampling.sampler import choose
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.startup import recorded_steps
from loragate.kernels import gpu, packed_linear
from loragate.kernels.gpu.side_stream import SideStream
from loragate.kernels.packed_linear import PackedLinear
from loragate.kernels.segmented_lora import LoraOptions
from tests.engine.test_sampler import EOS, MIXED, sequence

DEVICE = torch.device("meta")

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")


class NoNumbers(TorchFunctionMode):
    """Rejects Python numbers that torch itself would copy to the device, which no operator shows."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device = (kwargs or {}).get("device")
        assert func not in (torch.tensor, torch.as_tensor) or device is None or torch.device(device) != DEVICE
        if func in (Tensor.__getitem__, Tensor.__setitem__) and args[0].device == DEVICE:
            assert not any(isinstance(each, list) for each in (args[1], *tree_leaves(args[1]))), "rows by a list"
        return func(*args, **(kwargs or {}))


class NoTransfers(TorchDispatchMode):
    """Rejects copies from the host to the device, except single numbers, which are launch arguments.

    With `unwaited`, asynchronous copies are allowed.
    """

    def __init__(self, *, unwaited: bool = False) -> None:
        super().__init__()
        self.unwaited = unwaited
        self._numbers = NoNumbers()

    def __enter__(self) -> Any:
        self._numbers.__enter__()
        return super().__enter__()

    def __exit__(self, *why: Any) -> None:
        super().__exit__(*why)
        self._numbers.__exit__(*why)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
        made = result if isinstance(result, Tensor) else None
        nothing_waits = self.unwaited and (kwargs or {}).get("non_blocking")
        if made is not None and made.device == DEVICE and not nothing_waits:
            brought = [a for a in given if a.device.type == "cpu" and a.ndim > 0]
            assert not brought, f"{func} takes {[tuple(a.shape) for a in brought]} from the host"
            assert not func.__name__.startswith(("_to_copy", "copy_")) or all(a.device == DEVICE for a in given)
        return result


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces every launch by its operator, which only computes shapes."""
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    monkeypatch.setattr(packed_linear, "_can_pack", lambda *_: False)


def on_device(base: BaseModel) -> BaseModel:
    """Return the model as it would be on a GPU, without values."""

    def like(t: Tensor) -> Tensor:
        return torch.empty(t.shape, dtype=t.dtype, device=DEVICE)

    for module in base.model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and type(parameter) is nn.Parameter:
                module._parameters[name] = nn.Parameter(like(parameter), requires_grad=False)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = like(buffer)
    for group in (*base.groups, *base.targets_by_parameter.values()):
        if isinstance(group, ExpertProjection):
            weights, biases = group.linear._grouped or (None, None)
            assert weights is not None
            group.linear._grouped = like(weights), None if biases is None else like(biases)
        elif isinstance(group.linear, PackedLinear):
            bias = group.linear._bias
            group.linear._weight, group.linear._bias = like(group.linear._weight), None if bias is None else like(bias)
        elif isinstance(group.linear, ScaledLinear):
            group.linear._weight, group.linear._scales = like(group.linear._weight), like(group.linear._scales)
    object.__setattr__(base, "device", DEVICE)
    return base


def make_graphs(
    family: str,
    folder: Path,
    patch: pytest.MonkeyPatch,
    *,
    beside: bool = False,
    in_fp8: bool = False,
    **overrides: Any,
) -> StepGraphs:
    """Return graphs of a model on the device, which are still to be recorded; with `beside`, adapters are computed on
    two streams, and with `in_fp8`, base products in eight bits."""
    stand_ins = {"Stream": simulated_gpu.Stream, "stream": nullcontext, "current_stream": simulated_gpu.Stream}
    for name, stand_in in stand_ins.items():
        patch.setattr(torch.cuda, name, stand_in)
    model = make_model(family, **overrides).to(torch.bfloat16)
    if in_fp8:
        quantize_linears(model, torch.device("cpu"), model.get_output_embeddings())
    options = LoraOptions(beside=SideStream(DEVICE) if beside else None)
    base = on_device(prepare(model, lora=options))
    config = EngineConfig("", "", folder, max_batch_tokens=160, max_batch_size=40)
    base.reserve(4, 16)
    base.allocate_cache(64)
    shapes = recorded_steps.padded_shapes(base, config, 500, scratch=48)
    graphs = StepGraphs(shapes, base.context, partial(forward, base, LastTokens(40, DEVICE)), DEVICE)
    patch.setattr(graphs, "_send", lambda *_: None)
    patch.setattr(torch.compiler, "is_compiling", lambda: True)
    return graphs


FAMILIES = ["llama", "gemma2", "qwen3", "phi3", "gpt2", "mixtral", "qwen3_moe", "gpt_oss"]


@pytest.mark.parametrize(
    ("family", "in_fp8"),
    thinned(
        [(family, False) for family in FAMILIES] + [("llama", True)],
        fast={("gpt2", False), ("mixtral", False), ("llama", True)},
    ),
)
@pytest.mark.usefixtures("kernels")
def test_every_size_is_launched_without_reading_from_the_host(
    family: str, in_fp8: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = make_graphs(family, tmp_path, monkeypatch, in_fp8=in_fp8)

    def record(launches: Launches) -> Launches:
        launches()  # creates what is created once
        with NoTransfers():
            launches()
        return launches

    graphs.record(record)
    assert graphs.counters.failed == 0
    assert graphs.counters.recorded == 2 * len(sizes(160, 40))


class LaunchedOperators(TorchDispatchMode):
    """Lists the operators that compute something; one of ours may be several launches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if not func.is_view and name not in ("empty", "new_empty", "_unsafe_view", "detach"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


LINEAR = {False: ("linear", "lora_shrink", "lora_expand"), True: ("lora_shrink", "linear", "lora_expand")}
"""The launches of a linear with adapters, and where a second stream computes them beside it."""


def llama_layer(*, beside: bool) -> list[str]:
    linear = LINEAR[beside]
    return [
        *(*linear, "rotate_and_write", "decode_attention"),
        *(*linear, "add_rms_norm"),
        *(*linear, "gated", *linear, "add_rms_norm"),
    ]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.usefixtures("kernels")
def test_the_launches_of_a_decode_step(beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sum is launched with the norm that reads it, even if that is the next layer's or the final one, and keys
    are rotated where they are written."""
    found = launched("llama", tmp_path, monkeypatch, beside=beside)
    layers = found.index("rms_norm") + 1
    assert found[layers : found.index("index")] == 2 * llama_layer(beside=beside)
    assert "add" not in found
    assert found.count("rms_norm") == 1


SCALED = ("_scaled_mm", "lora_shrink", "lora_expand")
LLAMA_LAYER_IN_FP8 = [
    *(*SCALED, "rotate_and_write", "decode_attention"),
    *("quantize_rows", *SCALED, "add_rms_norm_quantized"),
    *(*SCALED, "gated_quantized", *SCALED, "add_rms_norm_quantized"),
]


@pytest.mark.usefixtures("kernels")
def test_the_launches_of_a_decode_step_in_fp8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only attention's output is quantized by a launch of its own; the norm before the head quantizes nothing."""
    found = launched("llama", tmp_path, monkeypatch, in_fp8=True)
    layers = found.index("rms_norm_quantized") + 1
    assert found[layers : found.index("index")] == [*(2 * LLAMA_LAYER_IN_FP8)[:-1], "add_rms_norm"]


@pytest.mark.usefixtures("kernels")
def test_sums_behind_a_norm_are_launched_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = launched("gemma2", tmp_path, monkeypatch)
    assert found.count("add") == 2 * 2
    assert "add_rms_norm" not in found


def launched(family: str, folder: Path, patch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    """Return the operators of the recorded step of one token, with adapters."""
    graphs = make_graphs(family, folder, patch, **options)

    def record(launches: Launches) -> Launches:
        launches()  # creates what is created once
        with LaunchedOperators() as found:
            launches()
        return lambda: names.extend(found.names)

    names: list[str] = []
    graphs.record(record)
    shape = min((shape for shape, _ in graphs.recordings), key=lambda shape: shape.rows)
    graphs._recordings[shape, True].replay()
    return names


class MemoryRead(TorchDispatchMode):
    """Collects the memory that launches read and did not allocate themselves; a capture keeps only its addresses."""

    def __init__(self) -> None:
        super().__init__()
        self._allocated: set[int] = set()
        self.found: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = _storages((args, kwargs))
        self.found |= {key: ref for key, ref in given.items() if key not in self._allocated}
        result = func(*args, **(kwargs or {}))
        self._allocated |= _storages(result).keys() - given.keys()
        return result


def _storages(tree: Any) -> dict[int, StorageWeakRef]:
    storages = [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
    return {storage._cdata: StorageWeakRef(storage) for storage in storages}


@pytest.mark.parametrize(
    ("family", "option"),
    thinned(
        [("llama", ""), ("llama", "beside"), ("llama", "in_fp8"), ("gpt2", ""), ("gpt_oss", "")],
        fast={("llama", "beside"), ("llama", "in_fp8"), ("gpt_oss", "")},
    ),
)
@pytest.mark.usefixtures("kernels")
def test_memory_that_a_recording_reads_lives_as_long_as_it(
    family: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a CUDA graph, what `record` returns here does not hold the launches."""
    graphs = make_graphs(family, tmp_path, monkeypatch, **({option: True} if option else {}))
    read = []

    def record(launches: Launches) -> Launches:
        launches()
        read.append(MemoryRead())
        with read[-1]:
            launches()
        return lambda: None

    graphs.record(record)
    assert graphs.counters.recorded == len(read) > 0
    assert all(len(each.found) > 10 for each in read), "weights, caches, tables and the step are read"
    assert [sum(ref.expired() for ref in each.found.values()) for each in read] == [0] * len(read)


def test_memory_freed_after_a_capture_is_detected() -> None:
    kept, freed = torch.ones(3, device=DEVICE), torch.ones(3, device=DEVICE)
    with MemoryRead() as read:
        (kept + freed).mul_(2)
    del freed
    assert sorted(ref.expired() for ref in read.found.values()) == [False, True]


def test_tokens_are_sampled_without_reading_from_the_host() -> None:
    """All sampling parameters are on their way before the first launch that reads them, and none is copied back."""
    rows = [sequence(seed=seed, **each) for seed, each in enumerate(MIXED * 3)]
    masked = np.full((2, 2), 77, dtype=np.int32)
    last = LastTokens(len(rows), DEVICE)
    for logits in (torch.empty(len(rows), 40, device=DEVICE), torch.empty(len(rows), 40, device=DEVICE).bfloat16()):
        with NoTransfers(unwaited=True):
            chosen = choose(logits, rows, EOS, TokenMask((1, 4), masked))
            last.store(chosen.tokens)
            last.fill_in(torch.empty(9, dtype=torch.long, device=DEVICE))
        assert all(each.device == DEVICE for each in chosen.tensors)
        assert chosen.tokens.shape == (len(rows),)


def test_a_step_without_a_graph_is_transferred_without_waiting() -> None:
    prompts = [Sequence(Request(0, i, (5,) * (1 + 8 * i), None, SamplingParams(1, 0)), 0) for i in range(3)]
    for each in prompts:
        each.places = np.arange(40)
    packed = PackedRows.from_entries(decode_first((each, len(each.tokens)) for each in prompts))
    with NoTransfers(unwaited=True):
        batch = build_batch(packed, DEVICE, SegmentCache())
    assert batch.rows == 1 + 9 + 17


@pytest.mark.parametrize("unwaited", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t.sum().item(),
        lambda t: t[t > 0],
        lambda t: t + torch.ones(3).to(DEVICE),
        lambda t: t.copy_(torch.ones(3)),
        lambda t: t[torch.tensor([0, 1])],
        lambda t: t[[0, 1]],
        lambda t: t.__setitem__([0, 1], 3.0),
        lambda t: t + torch.tensor([1.0, 2.0, 3.0], device=DEVICE),
    ],
)
def test_transfers_between_host_and_device_are_detected(wrong: Callable[[Tensor], object], unwaited: bool) -> None:
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)), NoTransfers(unwaited=unwaited):
        wrong(torch.ones(3, device=DEVICE))
