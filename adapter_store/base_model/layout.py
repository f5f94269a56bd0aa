"""Conversion of the engine's manifest to the layout that adapters are checked against.

A manifest may come from an engine of another version: entries unknown to this version are left out, so that no
adapter can use them, and missing entries count as absent.
"""

from loragate.peft_format.classification import ClassifierHead, Task
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, BaseParameter, ModuleKind, TargetModule
from loragate.v1 import engine_pb2

_KINDS = {
    engine_pb2.MODULE_KIND_LINEAR: ModuleKind.LINEAR,
    engine_pb2.MODULE_KIND_CONV1D: ModuleKind.CONV1D,
    engine_pb2.MODULE_KIND_EMBEDDING: ModuleKind.EMBEDDING,
    engine_pb2.MODULE_KIND_NORM: ModuleKind.NORM,
}

_TASKS = frozenset(Task)


def layout_of(manifest: engine_pb2.Manifest) -> BaseLayout:
    """Return the layout: all parts of the base model that an adapter may change."""
    return BaseLayout(
        model_type=manifest.model_type,
        num_layers=manifest.num_layers,
        modules={module.name: _module(module) for module in manifest.modules if module.kind in _KINDS},
        parameters={parameter.path: parameter for parameter in map(_parameter, manifest.parameters)},
        tied_embeddings=manifest.tied_embeddings,
        max_rank=manifest.max_lora_rank,
        serves=frozenset(kind for kind in AdapterKind if kind in manifest.adapter_kinds),
        input_embedding=manifest.input_embedding,
        head=manifest.output_head,
        dtype=manifest.dtype or "float32",
        classifier_heads={Task(head.task): _head(head) for head in manifest.classifier_heads if head.task in _TASKS},
    )


def _module(module: engine_pb2.TargetModule) -> TargetModule:
    return TargetModule(
        name=module.name,
        kind=_KINDS[module.kind],
        in_features=module.in_features,
        out_features=module.out_features,
        servable=module.servable,
        bias=module.bias,
    )


def _parameter(parameter: engine_pb2.BaseParameter) -> BaseParameter:
    return BaseParameter(
        module=parameter.module,
        name=parameter.name,
        shape=tuple(parameter.shape),
        transposed=parameter.transposed,
        servable=parameter.servable,
    )


def _head(head: engine_pb2.ClassifierHead) -> ClassifierHead:
    return ClassifierHead(head.name, head.in_features, head.bias)
