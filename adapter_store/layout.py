"""The engine's manifest as the layout that adapters are checked against."""

from loragate.peft_format.layout import BaseLayout, ModuleKind, TargetModule
from loragate.v1 import engine_pb2

_KINDS = {
    engine_pb2.MODULE_KIND_LINEAR: ModuleKind.LINEAR,
    engine_pb2.MODULE_KIND_CONV1D: ModuleKind.CONV1D,
    engine_pb2.MODULE_KIND_EMBEDDING: ModuleKind.EMBEDDING,
}


def layout_of(manifest: engine_pb2.Manifest) -> BaseLayout:
    """Modules of a kind this version does not know are left out, so that no adapter can target them."""
    modules = {
        module.name: TargetModule(
            name=module.name,
            kind=_KINDS[module.kind],
            in_features=module.in_features,
            out_features=module.out_features,
            servable=module.servable,
        )
        for module in manifest.modules
        if module.kind in _KINDS
    }
    return BaseLayout(
        model_type=manifest.model_type,
        num_layers=manifest.num_layers,
        modules=modules,
        tied_embeddings=manifest.tied_embeddings,
        max_rank=manifest.max_lora_rank,
    )
