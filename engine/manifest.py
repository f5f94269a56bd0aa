"""What the engine tells others about the loaded model, so that they need neither torch nor the engine itself."""

from dataclasses import replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from loragate.engine.base_model import BaseModel
from loragate.engine.checkpoint import TokenizerFiles
from loragate.engine.lora_linear import weight_and_bias
from loragate.engine.tracing import is_linear
from loragate.peft_format.layout import BaseLayout, ModuleKind, TargetModule
from loragate.v1 import engine_pb2 as pb

_KINDS = {
    ModuleKind.LINEAR: pb.MODULE_KIND_LINEAR,
    ModuleKind.CONV1D: pb.MODULE_KIND_CONV1D,
    ModuleKind.EMBEDDING: pb.MODULE_KIND_EMBEDDING,
}


def target_modules(model: PreTrainedModel) -> tuple[TargetModule, ...]:
    """Every module that PEFT could put a LoRA on, in the model's order. Call before our layers are in place."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            found.append(TargetModule(name, ModuleKind.EMBEDDING, *module.weight.shape))
        elif is_linear(module):
            kind = ModuleKind.CONV1D if isinstance(module, Conv1D) else ModuleKind.LINEAR
            out_features, in_features = weight_and_bias(module)[0].shape
            found.append(TargetModule(name, kind, in_features, out_features))
    return tuple(found)


def layout(base: BaseModel, modules: tuple[TargetModule, ...], max_rank: int) -> BaseLayout:
    """The modules as peft_format wants them, those marked that our layers stand for."""
    text = base.model.config.get_text_config()
    return BaseLayout(
        model_type=base.model.config.model_type,
        num_layers=text.num_hidden_layers,
        modules={m.name: replace(m, servable=m.name in base.group_of) for m in modules},
        tied_embeddings=bool(getattr(text, "tie_word_embeddings", False)),
        max_rank=max_rank,
    )


def build_manifest(base: BaseModel, where: BaseLayout, tokenizer: TokenizerFiles, **facts: Any) -> pb.Manifest:
    """`facts` are the manifest's fields that neither model nor tokenizer know."""
    text = base.model.config.get_text_config()
    return pb.Manifest(
        architecture=type(base.model).__name__,
        model_type=where.model_type,
        num_layers=where.num_layers,
        vocab_size=text.vocab_size,
        modules=[
            pb.TargetModule(
                name=m.name,
                kind=_KINDS[m.kind],
                in_features=m.in_features,
                out_features=m.out_features,
                servable=m.servable,
            )
            for m in where.modules.values()
        ],
        tied_embeddings=where.tied_embeddings,
        tokenizer_json=tokenizer.tokenizer_json,
        chat_template=tokenizer.chat_template,
        special_tokens=tokenizer.special_tokens,
        add_bos_token=tokenizer.add_bos_token,
        eos_token_ids=sorted(eos_token_ids(base.model)),
        dtype=str(base.dtype).removeprefix("torch."),
        device=str(base.device),
        max_lora_rank=where.max_rank,
        **facts,
    )


def eos_token_ids(model: PreTrainedModel) -> frozenset[int]:
    """generation_config says it best; the config has it where that is silent."""
    for config in (model.generation_config, model.config.get_text_config(), model.config):
        eos = getattr(config, "eos_token_id", None)
        if eos is not None:
            return frozenset([eos] if isinstance(eos, int) else eos)
    return frozenset()
