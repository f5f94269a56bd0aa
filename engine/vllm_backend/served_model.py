"""The manifest of a model that vLLM computes, from its configuration alone: no weight is read."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from loragate.engine.config import EngineConfig
from loragate.engine.loop.request_limits import ModelLimits
from loragate.engine.model.checkpoint import base_digest, read_sampling_defaults, read_tokenizer, served_name
from loragate.engine.model.errors import ModelRejected
from loragate.engine.model.manifest import build_manifest, targets
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind
from loragate.v1 import engine_pb2 as pb

NOTES = (
    "vLLM computes: no embeddings, no budget of thinking, no grammar after a thought, and a seed gives other tokens "
    "than on loragate's own engine",
)


class Facts(Protocol):
    """What only the running vLLM knows."""

    @property
    def max_model_len(self) -> int: ...

    @property
    def kv_tokens(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def device(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    manifest: pb.Manifest
    layout: BaseLayout
    limits: ModelLimits


def skeleton(directory: Path) -> PreTrainedModel:
    """Return the model without its weights; a recurrent one, too, which only vLLM serves. Raise ModelRejected."""
    try:
        config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise ModelRejected(f"transformers does not know the model in {directory}: {error}") from error
    return model


def whole_layout(model: PreTrainedModel, max_rank: int, kinds: frozenset[AdapterKind]) -> BaseLayout:
    """Return the model's modules; an adapter may change its linears and, if the kinds have it, its embedding."""
    text, found = model.config.get_text_config(), targets(model)
    linear = {ModuleKind.LINEAR, ModuleKind.CONV1D}
    servable = linear | {ModuleKind.EMBEDDING} if AdapterKind.EMBEDDING in kinds else linear
    return BaseLayout(
        model_type=model.config.model_type,
        num_layers=text.num_hidden_layers,
        modules={m.name: replace(m, servable=m.kind in servable) for m in found.modules},
        parameters={p.path: replace(p, servable=False) for p in found.parameters},
        tied_embeddings=bool(getattr(text, "tie_word_embeddings", False)),
        max_rank=max_rank,
        serves=kinds,
        input_embedding=found.input_embedding,
        head=found.head,
    )


def restricted(layout: BaseLayout, suffixes: Iterable[str]) -> BaseLayout:
    """Return the layout in which only modules with these last names can be changed."""
    kept = frozenset(suffixes)
    modules = layout.modules.items()
    return replace(
        layout,
        modules={name: replace(m, servable=m.servable and name.rpartition(".")[2] in kept) for name, m in modules},
    )


def describe(
    directory: Path, model: PreTrainedModel, layout: BaseLayout, config: EngineConfig, facts: Facts
) -> ServedModel:
    """Return the model as clients see it."""
    served = replace(layout, dtype=facts.dtype)
    manifest = build_manifest(
        model,
        served,
        read_tokenizer(directory),
        device=facts.device,
        model_id=served_name(config),
        base_digest=base_digest(directory, config.cache_dir / "base-digests.json"),
        max_model_len=facts.max_model_len,
        adapter_slots=config.adapter_slots,
        kv_capacity_tokens=facts.kv_tokens,
        notes=NOTES,
        sampling_defaults=read_sampling_defaults(directory),
    )
    limits = ModelLimits(facts.max_model_len, manifest.vocab_size, frozenset(manifest.eos_token_ids), embeds=False)
    return ServedModel(manifest, served, limits)
