"""The engine's settings, parsed once at the edge and frozen here."""

from dataclasses import dataclass
from pathlib import Path

_BYTES = ("adapter_device_bytes", "adapter_host_bytes", "adapter_disk_bytes", "max_full_weight_bytes")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The model that one engine process serves, and its bounds.

    Sizes are in tokens unless the name says otherwise. `None` means that the engine chooses from the model and the
    machine.
    """

    model: str  # a directory, or a hub id
    listen: str  # "unix:/…/engine.sock" or "host:port"
    cache_dir: Path  # adapter files by digest
    model_id: str | None = None  # the name that requests use
    dtype: str = "auto"  # auto, float32, bfloat16, float16
    quantization: str = "none"  # none, nf4, int8: how to quantize weights that are not quantized yet
    device: str = "auto"
    adapter_slots: int = 16  # adapters on the device at once; further ones are paged
    adapter_device_bytes: int | None = None  # for the weights of those adapters
    adapter_host_bytes: int | None = None  # for copies in host memory
    adapter_disk_bytes: int | None = None  # for files in cache_dir
    max_model_len: int | None = None
    kv_cache_tokens: int | None = None
    kv_cache_dtype: str = "auto"  # auto: the model's; int8, fp8: a quarter of float32's memory, slightly less exact
    max_batch_tokens: int = 512  # rows of one step: the chunk budget of prefill
    max_batch_size: int = 64  # sequences of one step
    cuda_graphs: bool = True  # on a GPU, capture the launches of steps of fixed sizes at start, and replay them
    async_scheduling: str = "auto"  # read a step's tokens after launching the next one: auto (on a GPU), on, off
    # prefill beside decoding sequences is limited so that a step takes about this long
    max_step_ms: float | None = 100.0
    max_waiting: int = 4096  # sequences in the queue; further ones are shed
    max_waiting_per_tenant: int = 1024
    block_size: int = 16  # tokens of one KV page
    prefix_cache: bool = True  # prompts of one tenant share the computation of common prefixes
    kv_host_bytes: int | None = None  # host memory for cached blocks evicted from the device; 0 = none
    max_lora_rank: int = 256
    max_full_weight_bytes: int | None = None  # of one adapter's full-weight modules; None: half of adapter_device_bytes
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in (
            "adapter_slots",
            "max_batch_tokens",
            "max_batch_size",
            "max_waiting",
            "max_waiting_per_tenant",
            "block_size",
            "max_lora_rank",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"engine.{name} must be at least 1, got {getattr(self, name)}")
        if self.max_step_ms is not None and self.max_step_ms <= 0:
            raise ValueError(f"engine.max_step_ms must be positive, got {self.max_step_ms}")
        optional = ("max_model_len", "kv_cache_tokens", "threads", *_BYTES)
        for name in optional:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"engine.{name} must be at least 1, got {value}")
        if self.kv_host_bytes is not None and self.kv_host_bytes < 0:
            raise ValueError(f"engine.kv_host_bytes must not be negative, got {self.kv_host_bytes}")
        if self.dtype not in ("auto", "float32", "bfloat16", "float16"):
            raise ValueError(f"engine.dtype must be auto, float32, bfloat16 or float16, got {self.dtype!r}")
        if self.kv_cache_dtype not in ("auto", "int8", "fp8"):
            raise ValueError(f"engine.kv_cache_dtype must be auto, int8 or fp8, got {self.kv_cache_dtype!r}")
        if self.quantization not in ("none", "nf4", "int8"):
            raise ValueError(f"engine.quantization must be none, nf4 or int8, got {self.quantization!r}")
        if self.async_scheduling not in ("auto", "on", "off"):
            raise ValueError(f"engine.async_scheduling must be auto, on or off, got {self.async_scheduling!r}")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"engine.device must be auto, cpu or cuda, got {self.device!r}")
        if self.max_batch_size > self.max_batch_tokens:
            raise ValueError(
                f"engine.max_batch_size ({self.max_batch_size}) must not exceed "
                f"engine.max_batch_tokens ({self.max_batch_tokens}): a decoding sequence takes one row of a step"
            )
