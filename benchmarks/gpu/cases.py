"""Sizes and random tensors that the stages of `benchmarks.gpu` share."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loragate.kernels.attention_rows import DecodeRows
from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.gpu.slot_tables import SlotTable
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.paged_attention import write_kv
from loragate.kernels.quantized_kv_cache import QuantizedLayerCache

PAGE = 16  # tokens per page of the cache, as in serving
SERVED_LENGTH = 8192  # of the longest sequence that a step's tables have room for


@dataclass(frozen=True, slots=True)
class MixtureSizes:
    """Sizes of the experts of one layer."""

    hidden: int
    intermediate: int
    experts: int
    top_k: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a model and of its workload."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    ranks: tuple[int, ...]
    rows: tuple[int, ...]  # rows of decode steps
    prefill_rows: int
    decodes: tuple[tuple[int, int], ...]  # sequences, and the length of each
    adapters: int  # maximum in a batch
    registered: int
    prompt: int
    new_tokens: int
    new_requests: int  # with cold adapters
    checked_layers: int  # layers of the model whose tokens are compared with PEFT's
    rounds: int  # the first is a warm-up
    copied_bytes: int
    mixture: MixtureSizes
    expert_adapters: int  # maximum in a batch

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def qkv(self) -> tuple[int, ...]:
        """Return the output sizes of q, k and v."""
        return self.hidden, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim

    @property
    def groups(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Return the input and output sizes of the fused linears of a layer."""
        return (
            (self.hidden, self.qkv),
            (self.hidden, (self.hidden,)),
            (self.hidden, (self.intermediate, self.intermediate)),
            (self.intermediate, (self.hidden,)),
        )


FULL = Sizes(
    hidden=4096,
    intermediate=14336,
    layers=32,
    heads=32,
    kv_heads=8,
    vocabulary=128256,
    ranks=(8, 16, 64, 256),
    rows=(1, 4, 16, 64),
    prefill_rows=1024,
    decodes=((1, 1024), (16, 1024), (64, 1024), (64, 4096), (1, 32768), (4, 32768)),
    adapters=64,
    registered=2000,
    prompt=64,
    new_tokens=128,
    new_requests=16,
    checked_layers=4,
    rounds=4,
    copied_bytes=1 << 30,
    mixture=MixtureSizes(2048, 768, 128, 8),
    expert_adapters=16,
)
"""The sizes of Llama 3 8B; the experts are those of Qwen3 30B-A3B."""

TINY = Sizes(
    hidden=64,
    intermediate=48,
    layers=2,
    heads=4,
    kv_heads=2,
    vocabulary=128,
    ranks=(8, 16),
    rows=(2,),
    prefill_rows=70,
    decodes=((2, 40),),
    adapters=3,
    registered=6,
    prompt=6,
    new_tokens=4,
    new_requests=2,
    checked_layers=1,
    rounds=2,
    copied_bytes=1 << 20,
    mixture=MixtureSizes(32, 24, 4, 2),
    expert_adapters=2,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The device and the sizes of a run."""

    device_name: str
    sizes: Sizes
    folder: Path  # of models and adapters, which the stages share
    out: Path  # folder for results

    @property
    def device(self) -> torch.device:
        return torch.device(self.device_name)

    def free(self) -> None:
        """Release the device memory of deleted tensors."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def memory_settings(self) -> dict[str, int]:
        """Return an engine's memory settings.

        Host memory is set because machines that grow on demand report little of it at first. Without a GPU, device
        memory for adapters makes the code that copies them run as on one.
        """
        if self.on_gpu:
            return {"adapter_device_bytes": 8 << 30, "adapter_host_bytes": 48 << 30, "kv_host_bytes": 0}
        return {"adapter_device_bytes": 16 << 20}

    @property
    def dtype(self) -> torch.dtype:
        """Return the type that is timed; the interpreter truncates bfloat16, so float32 without a GPU."""
        return torch.bfloat16 if self.on_gpu else torch.float32

    def numbers(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return (torch.randn(*shape, device=self.device) / 4).to(dtype)

    def weights(self, inputs: int, widths: Sequence[int], rank: int, dtype: torch.dtype) -> LoraWeights:
        """Return the weights of one adapter on all members of a fused linear."""
        starts = [sum(widths[:i]) for i in range(len(widths))]
        expands = [
            Expand(i * rank, (i + 1) * rank, start, self.numbers(rank, width, dtype=dtype) / 8)
            for i, (start, width) in enumerate(zip(starts, widths, strict=True))
        ]
        return LoraWeights(self.numbers(rank * len(widths), inputs, dtype=dtype) / 8, tuple(expands))

    def table(self, inputs: int, widths: Sequence[int], weights: dict[int, LoraWeights]) -> SlotTable:
        """Return a table as an engine has it: reserved for the largest rank on every member."""
        dtype = next((each.a.dtype for each in weights.values()), self.dtype)
        table = SlotTable(widths, inputs, dtype, self.device)
        table.reserve(max(self.sizes.adapters, *weights, 0) + 1, max(self.sizes.ranks) * len(widths))
        for slot, each in weights.items():
            table.put(slot, each)
        return table

    def experts(self, inputs: int, outputs: int, dtype: torch.dtype, transposed: bool = False) -> Tensor:
        """Return weights [experts, outputs, inputs]; outputs are contiguous in memory if `transposed`."""
        shape = (inputs, outputs) if transposed else (outputs, inputs)
        weights = self.numbers(self.sizes.mixture.experts, *shape, dtype=dtype)
        return weights.transpose(1, 2) if transposed else weights

    def expert_factors(self, inputs: int, outputs: int, rank: int, dtype: torch.dtype) -> ExpertFactors:
        """Return the factors of one adapter on all experts."""
        a, b = (self.numbers(self.sizes.mixture.experts, rank, width, dtype=dtype) / 8 for width in (inputs, outputs))
        return ExpertFactors(a, b)

    def chosen(self, rows: int) -> Tensor:
        """Return random router choices [rows, top_k]."""
        mixture = self.sizes.mixture
        return torch.rand(rows, mixture.experts, device=self.device).topk(mixture.top_k).indices

    def rotary_inputs(self, rows: int, rotary_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries and keys, as views of the fused q, k, v output, and the cosines and sines of random angles."""
        heads, kv_heads = self.sizes.heads, self.sizes.kv_heads
        wide = self.numbers(1, rows, heads + 2 * kv_heads, self.sizes.head_dim, dtype=dtype).transpose(1, 2)
        angles = 100 * self.numbers(1, rows, rotary_dim, dtype=torch.float32)
        return wide[:, :heads], wide[:, heads : heads + kv_heads], angles.cos().to(dtype), angles.sin().to(dtype)

    def cache(
        self, sequences: int, longest: int, dtype: torch.dtype, storage: torch.dtype | None = None
    ) -> tuple[LayerCache, Tensor]:
        """Return a filled cache and the places of each sequence's tokens [sequences, longest], in scattered pages."""
        blocks = -(-longest // PAGE)
        places = (sequences * blocks + 1) * PAGE
        kv_heads, dim = self.sizes.kv_heads, self.sizes.head_dim
        shape: tuple[Any, ...] = (places, kv_heads, dim, dim, dtype, self.device)
        cache = LayerCache(*shape) if storage is None else QuantizedLayerCache(*shape, storage)
        order = (torch.randperm(sequences * blocks) + 1).view(sequences, blocks, 1) * PAGE
        found = (order + torch.arange(PAGE)).view(sequences, -1)[:, :longest].contiguous().to(self.device)
        new = (self.numbers(kv_heads, sequences * longest, dim, dtype=dtype) for _ in range(2))
        write_kv(cache, found.reshape(-1), *new)
        return cache, found

    def decode_rows(self, places: Tensor) -> DecodeRows:
        """Return decode rows of sequences of slightly different lengths."""
        sequences, longest = places.shape
        return DecodeRows(places, torch.tensor([longest - i % 3 for i in range(sequences)], device=self.device))
