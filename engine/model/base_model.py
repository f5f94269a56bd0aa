"""The base model on its device: loaded from safetensors only, with our attention and LoRA layers in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from loragate.engine.config import EngineConfig
from loragate.engine.layers import attention, experts, lora_parameter, quantization, residual, rotary
from loragate.engine.layers import gated_mlp as gated
from loragate.engine.layers import rms_norm as norms
from loragate.engine.layers.classifier_head import ClassifierHeads
from loragate.engine.layers.experts import ExpertProjection
from loragate.engine.layers.forward_context import ForwardContext
from loragate.engine.layers.fp8_linear import Fp8Linear
from loragate.engine.layers.lora_linear import LoraGroup, LoraLinear, build_group
from loragate.engine.layers.patch import Patchable
from loragate.engine.layers.rowwise_module import SlotModule
from loragate.engine.layers.scaled_linear import ScaledLinear
from loragate.engine.model.architecture import check_architecture
from loragate.engine.model.checkpoint import saved_quantization
from loragate.engine.model.errors import ModelRejected
from loragate.engine.model.fp8_loading import check_fp8, quantize_to_fp8
from loragate.engine.model.quantized_loading import (
    QuantizationRejected,
    finish_loading,
    loading_options,
    quiet_loading,
)
from loragate.engine.model.tracing import AttentionLayer, Trace, trace
from loragate.kernels import gpu
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.quantized_kv_cache import QuantizedLayerCache
from loragate.kernels.segmented_lora import DEFAULT_OPTIONS, LoraOptions, join_slot_tables

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


_SCALE_BYTES = 4
_BRANCHES = 2  # of an expert's stacked projection, at most: gate and up, each with a rank of its own


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A loaded model whose linears are LoRA-aware and whose attention is paged."""

    model: PreTrainedModel
    context: ForwardContext
    groups: tuple[LoraGroup, ...]
    groups_by_module: Mapping[str, LoraGroup]
    slot_modules: Mapping[str, SlotModule]  # embeddings and norms
    targets_by_parameter: Mapping[str, LoraGroup | ExpertProjection]  # routers and experts, by the parameter's path
    heads: ClassifierHeads
    attention_layers: tuple[AttentionLayer, ...]
    trace: Trace
    dtype: torch.dtype
    device: torch.device

    def kv_bytes_per_token(self, storage: torch.dtype | None = None) -> int:
        """Return the bytes of one token's keys and values over all layers; quantized ones have two scales per head."""
        layers = self.attention_layers
        numbers = sum(layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in layers)
        if storage is None:
            return numbers * self.dtype.itemsize
        return numbers * storage.itemsize + sum(layer.kv_heads for layer in layers) * 2 * _SCALE_BYTES

    @property
    def is_quantized(self) -> bool:
        """Whether linears store something other than a matrix."""
        return any(isinstance(group.linear, quantization.CalledLinears | ScaledLinear) for group in self.groups)

    @property
    def adapter_dtype(self) -> torch.dtype:
        """The dtype of adapter weights; float32 on a CPU, see `LoraTable`."""
        return torch.float32 if self.device.type == "cpu" else self.dtype

    @property
    def patchable(self) -> Mapping[str, Patchable]:
        """The modules that adapters can change, by name."""
        return {**self.groups_by_module, **self.slot_modules}

    def adapter_bytes(self, rank: int) -> int:
        """Return the device memory of an adapter of this rank on every fused linear."""
        numbers = sum(rank * (g.in_features * len(g.members) + g.adapters.out_features) for g in self.groups)
        return numbers * self.adapter_dtype.itemsize

    def expert_bytes(self, rank: int) -> int:
        """Return the device memory of an adapter of this rank on all experts."""
        stacks = [p.linear for p in self.targets_by_parameter.values() if isinstance(p, ExpertProjection)]
        numbers = sum(rank * stack.experts * (stack.in_features + stack.out_features) for stack in stacks)
        return numbers * self.adapter_dtype.itemsize

    def reserve(self, slots: int, rank: int) -> None:
        """Reserve room for `slots` adapters of at most this rank per module in the tables that a GPU reads.

        From then on, launches do not depend on which adapters are resident.
        """
        groups = {*self.groups, *self.targets_by_parameter.values()}
        for group in groups:
            if isinstance(group, LoraGroup):
                group.adapters.reserve(slots, rank * len(group.members), self.adapter_dtype, self.device)
            else:
                like = torch.empty(0, dtype=self.adapter_dtype, device=self.device)
                group.adapters.reserve(slots, rank * _BRANCHES, group.linear, like)
        self.context.sync_tables = join_slot_tables([group.adapters.slots for group in groups], slots)

    def allocate_cache(self, places: int, storage: torch.dtype | None = None) -> tuple[LayerCache, ...]:
        """Give every attention layer room for `places` tokens, including the null place.

        The cache is quantized if a `storage` dtype is given.
        """
        caches = []
        for layer in self.attention_layers:
            shape = (places, layer.kv_heads, layer.key_dim, layer.value_dim, self.dtype, self.device)
            cache = LayerCache(*shape) if storage is None else QuantizedLayerCache(*shape, storage)
            attention.attach(layer.module, attention.AttentionState(self.context, cache))
            caches.append(cache)
        return tuple(caches)


def load_plain(directory: Path, config: EngineConfig) -> PreTrainedModel:
    """Load the model with transformers, with eager attention. Code from the folder is never run."""
    device = choose_device(config)
    if not any(directory.glob("*.safetensors")):
        raise ModelRejected(
            f"{directory} holds no *.safetensors file; convert the weights with "
            "`model.save_pretrained(folder, safe_serialization=True)` (pickled weights are never read)"
        )
    try:
        dtype = choose_dtype(directory, config)
        check_architecture(AutoConfig.from_pretrained(directory, trust_remote_code=False))
        saved = saved_quantization(directory)
        options = loading_options(saved, config.quantization, device)
        if config.quantization == "fp8":
            check_fp8(device, dtype)
        with quiet_loading(saved):
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                directory,
                dtype=dtype,
                attn_implementation="eager",
                experts_implementation="eager",
                use_safetensors=True,
                trust_remote_code=False,
                **options,
            )
        if config.quantization == "fp8":
            quantize_to_fp8(model, device)
    except (ValueError, KeyError, OSError) as error:
        raise ModelRejected(f"transformers cannot load {directory}: {error}") from error
    except QuantizationRejected as error:
        raise ModelRejected(f"{directory} cannot be served: {error}") from error
    if "device_map" not in options:
        nn.Module.to(model, device)
    finish_loading(model, dtype)
    model.eval().requires_grad_(False)
    return model


def prepare(model: PreTrainedModel, *, batch_invariant: bool = False, lora: LoraOptions = DEFAULT_OPTIONS) -> BaseModel:
    """Trace the plain model and replace its layers by ours.

    If `batch_invariant`, the last bits of a row do not depend on how many rows are computed with it.
    """
    try:
        traced = trace(model)
    except RuntimeError as error:
        raise ModelRejected(f"{type(model).__name__} cannot be served: {error}") from error
    context = ForwardContext(batch_invariant=batch_invariant, lora=lora)
    modules = dict(model.named_modules())
    parameter = next(model.parameters())
    if gpu.serves(parameter.device):
        _fuse(model, traced, modules, quantizes=not batch_invariant)
    groups, groups_by_module = [], {}
    for names in traced.groups:
        group = build_group(names, [modules[name] for name in names], context)
        groups.append(group)
        for name, member in zip(names, group.members, strict=True):
            groups_by_module[name] = group
            _replace(model, name, LoraLinear(group, member))
    targets_by_parameter = _adapt_parameters(modules, traced, context)
    for name in traced.rowwise:
        norm = norms.fused(modules[name])
        if norm is not None:
            modules[name] = norm
            _replace(model, name, norm)
    if gpu.serves(parameter.device):
        for name, layer in traced.residual.items():
            following = modules.get(layer.following or "")
            residual.fuse(modules[name], layer.parts, following if isinstance(following, norms.FusedNorm) else None)
        if not batch_invariant:
            _quantize_norms(traced, modules, groups_by_module)
    model.set_attn_implementation(attention.IMPLEMENTATION)
    model.set_experts_implementation(experts.IMPLEMENTATION)
    return BaseModel(
        model,
        context,
        tuple(groups),
        groups_by_module,
        {name: SlotModule(modules[name], dim, context) for name, dim in traced.rowwise.items()},
        targets_by_parameter,
        ClassifierHeads(),
        tuple(traced.attention),
        traced,
        parameter.dtype,
        parameter.device,
    )


def _fuse(model: PreTrainedModel, traced: Trace, modules: Mapping[str, nn.Module], *, quantizes: bool) -> None:
    """Replace parts that take many launches by parts that take one, where the model's computation is known.

    If it `quantizes`, the inputs of products in eight bits are quantized where they are computed.
    """
    for layer in traced.attention:
        rotary.fuse(layer.module, passes_on=layer.passes_on_rotated)
    for names in traced.groups:
        name = names[0].rpartition(".")[0]
        how = gated.recognize(
            modules[name], [sibling.rpartition(".")[2] for sibling in names], model.device, model.dtype
        )
        if how is not None:
            parts = dict(modules[name].named_children())
            in_fp8 = isinstance(parts[how.down], Fp8Linear)
            _replace(model, name, gated.GatedMlp(parts, how, quantizes=quantizes and in_fp8))


def _quantize_norms(traced: Trace, modules: Mapping[str, nn.Module], groups_by_module: Mapping[str, LoraGroup]) -> None:
    for first, name in traced.norms.items():
        norm = modules[name]
        if isinstance(groups_by_module[first].linear, ScaledLinear) and isinstance(norm, norms.FusedNorm):
            norm.quantize()


def _adapt_parameters(
    modules: Mapping[str, nn.Module], traced: Trace, context: ForwardContext
) -> dict[str, LoraGroup | ExpertProjection]:
    names = {module: name for name, module in modules.items()}
    adapted: dict[str, LoraGroup | ExpertProjection] = {}
    for path in traced.bare_weights:
        owner, _, parameter = path.rpartition(".")
        adapted[path] = lora_parameter.adapt(modules[owner], parameter, path, context)
    for module, adaptable in traced.experts.items():
        projections = experts.attach(module, context)
        if adaptable:
            adapted |= {f"{names[module]}.{projection.name}": projection for projection in projections}
    return adapted


def choose_dtype(directory: Path, config: EngineConfig) -> torch.dtype:
    """Return the configured dtype, else the checkpoint's own, except that fp16 becomes fp32 on a CPU."""
    if config.dtype != "auto":
        return _DTYPES[config.dtype]
    saved = getattr(AutoConfig.from_pretrained(directory, trust_remote_code=False), "dtype", None)
    if not isinstance(saved, torch.dtype):
        return torch.float32
    if choose_device(config).type == "cpu" and saved == torch.float16:
        return torch.float32
    return saved


def choose_device(config: EngineConfig) -> torch.device:
    """Return the configured device, else the first GPU if there is one."""
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.device)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
