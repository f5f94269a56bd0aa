"""The planner: from a config and a header to everything that the adapter changes, and with which tensors.

The file must have exactly the tensors that the config needs, in exactly their shapes. A misread config therefore
ends in an error, and not in an adapter that is served in part.
"""

from dataclasses import replace

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import in_config
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.plan import tensor_names as keys
from loragate.peft_format.plan.biases import plan_biases
from loragate.peft_format.plan.classifier import classifier_layout, split_classifier
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.low_rank import plan_modules
from loragate.peft_format.plan.mixture import converted, family_of
from loragate.peft_format.plan.modules_to_save import plan_replaced, unmatched_modules
from loragate.peft_format.plan.parameters import plan_parameters, unmatched_parameters
from loragate.peft_format.plan.plan import AdapterPlan
from loragate.peft_format.plan.redundant_tensors import drop_redundant, take_base_copies, take_tied_rows
from loragate.peft_format.plan.scaling import Sizes
from loragate.peft_format.plan.servable import require
from loragate.peft_format.plan.targets import resolve_targets
from loragate.peft_format.plan.tensor_index import Tensors
from loragate.peft_format.plan.trained_tokens import plan_trained_tokens
from loragate.peft_format.plan.tying import tied_modules_to_save, tied_pairs, tied_targets
from loragate.peft_format.safetensors.header import Header

_MAX_WARNINGS = 20
_TOKENS = "trainable_token_indices"
_INVOCATION = "alora_invocation_tokens"


def plan_adapter(config: LoraConfig, header: Header, layout: BaseLayout) -> AdapterPlan:
    """Return what to load where; raises AdapterRejected. Reads no tensor."""
    budget = Budget()
    layout = classifier_layout(config, header, layout)
    family = family_of(layout)
    tensors = Tensors(header, family.renamed if family else str)
    config = tied_modules_to_save(converted(config, layout, budget), layout)
    plan = split_classifier(_plan(config, layout, budget, tensors), config, layout)
    if plan.invocation_tokens is not None:
        _check_activation(plan, layout)
    return _with_leftovers(plan, layout, tensors)


def _plan(config: LoraConfig, layout: BaseLayout, budget: Budget, tensors: Tensors) -> AdapterPlan:
    targets = resolve_targets(config, layout, budget)
    sizes = Sizes(config, layout.max_rank, budget)
    targeted = tied_targets(config, layout, targets.modules, budget)
    parameters, linears = plan_parameters(config, layout, targeted, sizes, tensors)
    modules, embeddings = plan_modules(targeted, config, layout, sizes, tensors)
    modules |= linears
    wrapped = {*modules, *embeddings, *(plan.parameter.module for plan in parameters.values())}
    trained_tokens = plan_trained_tokens(config, layout, modules, embeddings, tensors)
    rows = {module.name for tokens in trained_tokens.values() for module in tokens.modules}
    replaced = plan_replaced(config, layout, wrapped | rows, tensors)
    warnings = [
        *targets.warnings,
        *unmatched_parameters(config, layout),
        *unmatched_modules(config, layout),
        *sizes.warnings(),
    ]
    return AdapterPlan(
        modules=modules,
        embeddings=embeddings,
        parameters=parameters,
        replaced=replaced,
        trained_tokens=trained_tokens,
        biases=plan_biases(config, layout, wrapped, replaced, tensors),
        invocation_tokens=config.alora_invocation_tokens,
        tied=tied_pairs(config, layout, modules, embeddings, replaced),
        warnings=_first(warnings),
    )


def _first(warnings: list[str]) -> tuple[str, ...]:
    more = len(warnings) - _MAX_WARNINGS
    return (*warnings[:_MAX_WARNINGS], *([f"There are {more} more warnings of these kinds."] if more > 0 else []))


def _check_activation(plan: AdapterPlan, layout: BaseLayout) -> None:
    """Check that the model is the base model up to the invocation tokens: its keys and values are shared."""
    require(AdapterKind.ACTIVATED, layout, _INVOCATION)
    vocabulary = layout.embedding.in_features if layout.embedding else None
    last = max(plan.invocation_tokens or (0,))
    if vocabulary is not None and last >= vocabulary:
        raise in_config(_INVOCATION, f"{_INVOCATION} holds {last}, but this model has {vocabulary} tokens.")
    for field, part in (("modules_to_save", plan.replaced), (_TOKENS, plan.trained_tokens), ("bias", plan.biases)):
        if part:
            raise in_config(
                field,
                f"{field} also changes the model before the invocation tokens, which activated LoRA must not do.",
            )


def _with_leftovers(plan: AdapterPlan, layout: BaseLayout, tensors: Tensors) -> AdapterPlan:
    copies = take_base_copies(layout, plan, tensors)
    repeated = tuple(take_tied_rows(plan, tensors))
    drop_redundant(plan, tensors)
    for name in tensors.left():
        raise keys.foreign(name)
    return replace(plan, base_copies=copies, tied=plan.tied + repeated)
