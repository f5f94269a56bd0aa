"""The engine's settings, parsed once at the edge and frozen here."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin


def _at_least(minimum: int, default: int | None) -> Any:
    """Return a field of which __post_init__ checks the minimum."""
    return field(default=default, metadata={"minimum": minimum})


MAX_MODEL_ID = 160  # characters: every record of usage has it, and must fit a slot of fixed size


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The bounds and choices that have defaults. `loragate`'s settings take them over as they stand here.

    Sizes are in tokens unless the name says otherwise. `None` means that the engine chooses from the model and the
    machine.

    `max_full_weight_bytes` is by default half of `adapter_device_bytes`; `async_scheduling` "auto" is on with a GPU;
    `kv_cache_dtype` "int8" and "fp8" take a quarter of float32's memory and are slightly less exact.
    """

    # what computes: our own engine, or vLLM in its own environment (docs/vllm.md)
    backend: Literal["loragate", "vllm"] = "loragate"
    tensor_parallel_size: int = _at_least(1, 1)  # GPUs that share each layer, with the backend vllm
    model_id: str | None = None  # the name that requests use
    require_pinned_model: bool = False  # reject a model of a hub that is not named with its full commit
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Literal["none", "nf4", "int8", "fp8"] = "none"  # how to quantize weights that are not quantized yet
    device: Literal["auto", "cpu", "cuda"] = "auto"
    adapter_slots: int = _at_least(1, 16)  # adapters on the device at once; further ones are paged
    adapter_device_bytes: int | None = _at_least(1, None)  # for the weights of those adapters
    adapter_host_bytes: int | None = _at_least(1, None)  # for copies in host memory
    adapter_disk_bytes: int | None = _at_least(1, None)  # for files in cache_dir
    max_model_len: int | None = _at_least(1, None)
    kv_cache_tokens: int | None = _at_least(1, None)
    kv_cache_dtype: Literal["auto", "int8", "fp8"] = "auto"  # auto: the model's
    max_batch_tokens: int = _at_least(1, 512)  # rows of one step: the chunk budget of prefill
    max_batch_size: int = _at_least(1, 64)  # sequences of one step
    cuda_graphs: bool = True  # on a GPU, capture the launches of steps of fixed sizes at start, and replay them
    # on a GPU, compute each row so that its last bits do not depend on the batch, which costs time; auto: off
    batch_invariant: Literal["auto", "on", "off"] = "auto"
    # on a GPU of architecture 9.0 or newer, start an adapter's second launch while its first one ends
    lora_dependent_launch: bool = False
    lora_side_stream: bool = False  # on a GPU, compute an adapter's first launch beside the base product
    # on a GPU, compute an adapter by cuBLAS for so many consecutive rows, in steps that are then not replayed; 0: never
    lora_gemm_rows: int = _at_least(0, 0)
    async_scheduling: Literal["auto", "on", "off"] = "auto"  # read a step's tokens after the next one is launched
    # prefill beside decoding sequences is limited so that a step takes about this long
    max_step_ms: float | None = 100.0
    # while several tenants decode, a step takes at most so many times as long as one with a single row; None: 2.5 on a
    # CPU, no bound on a GPU
    max_slowdown: float | None = None
    # a step that has rows of batches beside others takes this long at most; None: as long as it would without them
    batch_step_ms: float | None = None
    max_waiting: int = _at_least(1, 4096)  # sequences in the queue; further ones are shed
    max_waiting_per_tenant: int = _at_least(1, 1024)
    block_size: int = _at_least(1, 16)  # tokens of one KV page
    prefix_cache: bool = True  # prompts of one tenant share the computation of common prefixes
    # on a GPU that a trainer shares: what it takes beside its copy of the base model; both are left free
    trainer_bytes: int = _at_least(0, 0)
    kv_host_bytes: int | None = _at_least(0, None)  # host memory for cached blocks evicted from the device; 0: none
    max_lora_rank: int = _at_least(1, 256)
    max_full_weight_bytes: int | None = _at_least(1, None)  # of one adapter's full-weight modules
    threads: int | None = _at_least(1, None)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            choices = get_args(each.type) if get_origin(each.type) is Literal else ()
            if choices and value not in choices:
                named = f"{', '.join(choices[:-1])} or {choices[-1]}"
                raise ValueError(f"engine.{each.name} must be {named}, got {value!r}")
            if value is not None and value < each.metadata.get("minimum", value):
                raise ValueError(f"engine.{each.name} must be at least {each.metadata['minimum']}, got {value}")
        if self.model_id is not None:
            check_model_id(self.model_id)
        if self.max_step_ms is not None and not self.max_step_ms > 0:
            raise ValueError(f"engine.max_step_ms must be positive, got {self.max_step_ms}")
        if self.batch_step_ms is not None and not self.batch_step_ms > 0:
            raise ValueError(f"engine.batch_step_ms must be positive, got {self.batch_step_ms}")
        if self.max_slowdown is not None and not self.max_slowdown >= 1:
            raise ValueError(f"engine.max_slowdown must be at least 1, got {self.max_slowdown}")
        if self.lora_gemm_rows and self.batch_invariant == "on":
            raise ValueError(
                "engine.lora_gemm_rows must be 0 with engine.batch_invariant on: cuBLAS chooses the order of sums by "
                f"the number of rows, got {self.lora_gemm_rows}"
            )
        if self.lora_dependent_launch and self.lora_side_stream:
            raise ValueError(
                "engine.lora_dependent_launch and engine.lora_side_stream exclude each other: the first needs an "
                "adapter's two launches one after the other"
            )
        if self.tensor_parallel_size > 1 and self.backend != "vllm":
            raise ValueError(
                f"engine.tensor_parallel_size is {self.tensor_parallel_size}, but loragate's own engine computes on "
                "one GPU: set engine.backend to vllm, or leave it out"
            )
        if self.max_batch_size > self.max_batch_tokens:
            raise ValueError(
                f"engine.max_batch_size ({self.max_batch_size}) must not exceed "
                f"engine.max_batch_tokens ({self.max_batch_tokens}): a decoding sequence takes one row of a step"
            )


def check_model_id(model_id: str) -> None:
    """Raise ValueError for a name that is too long or not printable."""
    if not 0 < len(model_id) <= MAX_MODEL_ID or not model_id.isprintable():
        raise ValueError(f"engine.model_id must be 1 to {MAX_MODEL_ID} printable characters, got {model_id!r}")


@dataclass(frozen=True, slots=True)
class EngineConfig(EngineOptions):
    """The model that one engine process serves, its address and its limits."""

    model: str  # a directory, or a hub id
    listen: str  # "unix:/…/engine.sock" or "host:port"
    cache_dir: Path  # adapter files by digest
    secret: str = field(default="", repr=False)  # which every call brings; a server needs one
    previous_secrets: tuple[str, ...] = field(default=(), repr=False)  # of clients that do not have the new one yet
    tls_cert: Path | None = None  # PEM, with intermediate certificates; needed on addresses beyond this machine
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # PEM: the authority of clients' certificates; needed on the same addresses
