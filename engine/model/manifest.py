"""The description of the loaded model for other processes, which then need neither torch nor the engine itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from loragate.engine.layers.lora_linear import is_linear, linear_shape
from loragate.engine.layers.rms_norm import is_norm
from loragate.engine.model.base_model import BaseModel
from loragate.engine.model.checkpoint import TokenizerFiles
from loragate.peft_format.classification import ClassifierHead, Task
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, BaseParameter, ModuleKind, TargetModule
from loragate.v1 import engine_pb2 as pb

SERVES = frozenset(
    {
        AdapterKind.DORA,
        AdapterKind.EMBEDDING,
        AdapterKind.BLOCK_DIAGONAL,
        AdapterKind.PARAMETERS,
        AdapterKind.REPLACED,
        AdapterKind.TRAINED_TOKENS,
        AdapterKind.BIAS,
        AdapterKind.CLASSIFIER,
        AdapterKind.BASE_COPIES,
        AdapterKind.ACTIVATED,
    }
)
"""Kinds of adapters that this engine serves beyond plain LoRA on linear layers."""

_KINDS = {
    ModuleKind.LINEAR: pb.MODULE_KIND_LINEAR,
    ModuleKind.CONV1D: pb.MODULE_KIND_CONV1D,
    ModuleKind.EMBEDDING: pb.MODULE_KIND_EMBEDDING,
    ModuleKind.NORM: pb.MODULE_KIND_NORM,
}


@dataclass(frozen=True, slots=True)
class Targets:
    """Everything in a model that a PEFT adapter could change, in the model's order."""

    modules: tuple[TargetModule, ...]
    parameters: tuple[BaseParameter, ...]
    input_embedding: str
    head: str


def targets(model: PreTrainedModel) -> Targets:
    """Return the targets that PEFT would find. Call before our layers are in place."""
    names = {module: name for name, module in model.named_modules()}
    modules = {name: found for module, name in names.items() if (found := _describe(name, module))}
    return Targets(
        tuple(modules.values()),
        tuple(_bare_parameters(model, modules)),
        names.get(model.get_input_embeddings(), ""),
        names.get(model.get_output_embeddings(), ""),
    )


def _describe(name: str, module: nn.Module) -> TargetModule | None:
    if isinstance(module, nn.Embedding):
        return TargetModule(name, ModuleKind.EMBEDDING, *module.weight.shape)
    if is_linear(module):
        kind = ModuleKind.CONV1D if isinstance(module, Conv1D) else ModuleKind.LINEAR
        out_features, in_features = linear_shape(module)
        return TargetModule(name, kind, in_features, out_features, bias=module.bias is not None)
    if is_norm(module):
        parameters = dict(module.named_parameters())
        (width,) = parameters["weight"].shape
        return TargetModule(name, ModuleKind.NORM, width, width, bias="bias" in parameters)
    return None


def _bare_parameters(model: PreTrainedModel, described: Mapping[str, TargetModule]) -> Iterator[BaseParameter]:
    for name, module in model.named_modules():
        if name and name not in described:
            transposed = bool(getattr(module, "is_transposed", False))
            for key, parameter in module.named_parameters(recurse=False):
                yield BaseParameter(name, key, tuple(parameter.shape), transposed)


def layout(
    base: BaseModel, found: Targets, max_rank: int, heads: Mapping[Task, ClassifierHead] | None = None
) -> BaseLayout:
    """Return the targets in peft_format's form, marked where our layers can serve them."""
    text = base.model.config.get_text_config()
    return BaseLayout(
        model_type=base.model.config.model_type,
        num_layers=text.num_hidden_layers,
        modules={m.name: replace(m, servable=m.name in base.patchable) for m in found.modules},
        parameters={p.path: replace(p, servable=p.path in base.targets_by_parameter) for p in found.parameters},
        tied_embeddings=bool(getattr(text, "tie_word_embeddings", False)),
        max_rank=max_rank,
        serves=SERVES,
        input_embedding=found.input_embedding,
        head=found.head,
        dtype=str(base.dtype).removeprefix("torch."),
        classifier_heads=heads or {},
    )


def build_manifest(model: PreTrainedModel, where: BaseLayout, tokenizer: TokenizerFiles, **facts: Any) -> pb.Manifest:
    """Build the manifest; `facts` are the fields that neither model nor tokenizer determine."""
    text = model.config.get_text_config()
    return pb.Manifest(
        architecture=type(model).__name__,
        model_type=where.model_type,
        num_layers=where.num_layers,
        vocab_size=text.vocab_size,
        modules=[module_message(m) for m in where.modules.values()],
        parameters=[parameter_message(p) for p in where.parameters.values()],
        adapter_kinds=sorted(where.serves),
        input_embedding=where.input_embedding,
        output_head=where.head,
        tied_embeddings=where.tied_embeddings,
        tokenizer_json=tokenizer.tokenizer_json,
        chat_template=tokenizer.chat_template,
        special_tokens=tokenizer.special_tokens,
        add_bos_token=tokenizer.add_bos_token,
        eos_token_ids=sorted(eos_token_ids(model)),
        dtype=where.dtype,
        max_lora_rank=where.max_rank,
        classifier_heads=[head_message(task, head) for task, head in where.classifier_heads.items()],
        pad_token_id=text.pad_token_id,
        **facts,
    )


def module_message(module: TargetModule) -> pb.TargetModule:
    return pb.TargetModule(
        name=module.name,
        kind=_KINDS[module.kind],
        in_features=module.in_features,
        out_features=module.out_features,
        servable=module.servable,
        bias=module.bias,
    )


def parameter_message(parameter: BaseParameter) -> pb.BaseParameter:
    return pb.BaseParameter(
        module=parameter.module,
        name=parameter.name,
        shape=parameter.shape,
        transposed=parameter.transposed,
        servable=parameter.servable,
    )


def head_message(task: Task, head: ClassifierHead) -> pb.ClassifierHead:
    return pb.ClassifierHead(task=task, name=head.name, in_features=head.in_features, bias=head.bias)


def eos_token_ids(model: PreTrainedModel) -> frozenset[int]:
    """Return the EOS tokens from generation_config, or from the config if that has none."""
    for config in (model.generation_config, model.config.get_text_config(), model.config):
        eos = getattr(config, "eos_token_id", None)
        if eos is not None:
            return frozenset([eos] if isinstance(eos, int) else eos)
    return frozenset()
