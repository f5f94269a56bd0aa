"""`ensure_weight_tying`: a change of one of a tied embedding and head applies to the other.

PEFT puts the LoRA, or the trained copy, on the embedding, and the head shares its values. The file holds both, so
they are planned separately, and compared when the tensors are read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.plan.layout import BaseLayout, TargetModule
from loragate.peft_format.plan.plan import EmbeddingPlan, ModulePlan, ReplacedModule, TiedPair
from loragate.peft_format.plan.targets import lies_in, selector

# The only names by which PEFT notices that an embedding or a head is targeted.
_NOTICED = ("embed_tokens", "lm_head")


def tied_modules_to_save(config: LoraConfig, layout: BaseLayout) -> LoraConfig:
    """Return the config with embedding and head in `modules_to_save`, if it has one of them and they stay tied."""
    ends = _ends(layout)
    if not config.ensure_weight_tying or ends is None or not _notices(config.modules_to_save):
        return config
    embedding, head = ends
    kept = (name for name in config.modules_to_save if not lies_in(head.name, (name,)))
    return replace(config, modules_to_save=tuple(sorted({*kept, embedding.name, head.name})))


def tied_targets(
    config: LoraConfig, layout: BaseLayout, targets: tuple[TargetModule, ...], budget: Budget
) -> tuple[TargetModule, ...]:
    """Return the targets with embedding and head, if one of them is a target and they stay tied."""
    ends = _ends(layout)
    if not config.ensure_weight_tying or ends is None or _notices(config.modules_to_save):
        return targets
    names = {module.name for module in (*targets, *(ends if _targets_noticed(config, budget) else ()))}
    return tuple(module for module in layout.modules.values() if module.name in names)


def keeps_tied(config: LoraConfig, layout: BaseLayout, budget: Budget) -> bool:
    """Return whether a change of one of embedding and head applies to the other."""
    if not config.ensure_weight_tying or _ends(layout) is None:
        return False
    return _notices(config.modules_to_save) or _targets_noticed(config, budget)


def tied_pairs(
    config: LoraConfig,
    layout: BaseLayout,
    modules: Mapping[str, ModulePlan],
    embeddings: Mapping[str, EmbeddingPlan],
    replaced: Mapping[str, ReplacedModule],
) -> tuple[TiedPair, ...]:
    """Return the pairs of tensors in which the head must hold the embedding's values."""
    ends = _ends(layout)
    if not config.ensure_weight_tying or ends is None:
        return ()
    embedding, head = (module.name for module in ends)
    if embedding in embeddings and head in modules:
        lora, tied = embeddings[embedding], modules[head]
        return (TiedPair(lora.lora_a, tied.lora_b, True), TiedPair(lora.lora_b, tied.lora_a, True))
    if embedding in replaced and head in replaced:
        return (TiedPair(replaced[embedding].parameters["weight"], replaced[head].parameters["weight"], False),)
    return ()


def _ends(layout: BaseLayout) -> tuple[TargetModule, TargetModule] | None:
    embedding, head = layout.embedding, layout.tied_head
    return None if embedding is None or head is None else (embedding, head)


def _targets_noticed(config: LoraConfig, budget: Budget) -> bool:
    if isinstance(config.target_modules, str):
        return any(map(selector(config.target_modules, "target_modules", budget), _NOTICED))
    return _notices(config.target_modules)


def _notices(names: Iterable[str]) -> bool:
    return any(name.rsplit(".", 1)[-1] in _NOTICED for name in names)
