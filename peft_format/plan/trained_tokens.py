"""Plans for `trainable_token_indices`: single rows of an embedding or of the head that replace the base model's."""

from collections.abc import Collection, Mapping

from loragate.peft_format.config.lora_config import INPUT_EMBEDDING, LoraConfig
from loragate.peft_format.errors import in_config, quoted
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan import tensor_names as keys
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule
from loragate.peft_format.plan.plan import ModulePlan, TrainedTokens
from loragate.peft_format.plan.servable import require, require_servable
from loragate.peft_format.plan.tensor_index import Tensors

_FIELD = "trainable_token_indices"


def plan_trained_tokens(
    config: LoraConfig,
    layout: BaseLayout,
    modules: Mapping[str, ModulePlan],
    embeddings: Collection[str],
    tensors: Tensors,
) -> dict[str, TrainedTokens]:
    """Return the plans by the name of the module that was trained; raises AdapterRejected.

    `modules` and `embeddings` have LoRA, which can be combined with trained tokens on a tied head only.
    """
    if not config.trainable_token_indices:
        return {}
    require(AdapterKind.TRAINED_TOKENS, layout, _FIELD)
    trained: dict[str, tuple[int, ...]] = {}
    for name, token_ids in config.trainable_token_indices:
        for module in _modules(name, layout):
            if trained.setdefault(module.name, token_ids) != token_ids:
                raise in_config(_FIELD, f"{_FIELD} names {module.name} twice; name it once.")
    tied = _tied(config, layout, trained)
    if tied is not None:
        trained.pop(tied.name, None)
        if tied.name in modules and modules[tied.name].magnitude is not None:
            raise in_config(_FIELD, f"{_FIELD} changes the tied {tied.name}, which has DoRA on it; train one of them.")
    for name in trained:
        if name in modules or name in embeddings:
            raise in_config(_FIELD, f"{_FIELD} and LoRA both select {name}; leave it out of one.")
    return {name: _plan(name, token_ids, layout, tied, tensors) for name, token_ids in trained.items()}


def _modules(name: str, layout: BaseLayout) -> list[TargetModule]:
    """Return the modules whose name ends with `name`; the empty name is the input embedding's."""
    if name == INPUT_EMBEDDING:
        found = [layout.embedding] if layout.embedding else []
    else:
        found = [module for module in layout.modules.values() if module.name.endswith(name)]
    for module in found:
        if module.kind not in (ModuleKind.EMBEDDING, ModuleKind.LINEAR):
            raise in_config(_FIELD, f"{_FIELD} selects {module.name}, which is neither an embedding nor a head.")
        if module.bias:
            # PEFT computes the head from its weight alone when some of its tokens are trained.
            raise in_config(_FIELD, f"{_FIELD} selects {module.name}, whose bias PEFT would drop; leave it out.")
    if not found:
        raise in_config(_FIELD, f"{_FIELD} names {quoted(name)}, which this {layout.model_type} model does not have.")
    return found


def _tied(config: LoraConfig, layout: BaseLayout, trained: dict[str, tuple[int, ...]]) -> TargetModule | None:
    """Return the head, if it is tied to an embedding with trained tokens and follows it.

    It does not follow if it was given other tokens of its own.
    """
    embedding, head = layout.embedding, layout.tied_head
    if embedding is None or head is None or embedding.name not in trained:
        return None
    if trained.get(head.name, trained[embedding.name]) == trained[embedding.name]:
        return head
    if config.ensure_weight_tying:
        raise in_config(
            _FIELD,
            f"{_FIELD} gives the tied {embedding.name} and {head.name} different tokens; "
            "set ensure_weight_tying to false.",
        )
    return None


def _plan(
    name: str, token_ids: tuple[int, ...], layout: BaseLayout, tied: TargetModule | None, tensors: Tensors
) -> TrainedTokens:
    module = layout.modules[name]
    vocabulary, dim = _rows(module)
    modules = (module, tied) if tied is not None and module is layout.embedding else (module,)
    for each in modules:
        require_servable(each, _FIELD)
    if max(token_ids) >= vocabulary:
        raise in_config(_FIELD, f"{_FIELD} holds {max(token_ids)}, but {name} has {vocabulary} tokens.")
    reason = f"{_FIELD} has {len(token_ids)} tokens of {name}"
    return TrainedTokens(modules, token_ids, tensors.take(keys.trained_rows(name), (len(token_ids), dim), reason))


def _rows(module: TargetModule) -> tuple[int, int]:
    vocabulary, dim = module.weight_shape
    return vocabulary, dim
