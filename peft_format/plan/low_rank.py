"""Plans for modules with LoRA: linears, with DoRA or block-diagonal factors, and embeddings."""

from collections.abc import Iterable

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import in_config, in_tensor
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan import tensor_names as keys
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule
from loragate.peft_format.plan.plan import EmbeddingPlan, ModulePlan
from loragate.peft_format.plan.scaling import Sizes
from loragate.peft_format.plan.servable import require, require_servable
from loragate.peft_format.plan.tensor_index import Tensors

_FIELD = "target_modules"


def plan_modules(
    modules: Iterable[TargetModule], config: LoraConfig, layout: BaseLayout, sizes: Sizes, tensors: Tensors
) -> tuple[dict[str, ModulePlan], dict[str, EmbeddingPlan]]:
    """Return the plans by name, in the order of `modules`; raises AdapterRejected."""
    linears: dict[str, ModulePlan] = {}
    embeddings: dict[str, EmbeddingPlan] = {}
    for module in modules:
        match module.kind:
            case ModuleKind.LINEAR | ModuleKind.CONV1D:
                linears[module.name] = plan_linear(module, module.name, config, layout, sizes, tensors)
            case ModuleKind.EMBEDDING:
                embeddings[module.name] = _plan_embedding(module, config, layout, sizes, tensors)
            case ModuleKind.NORM:
                raise in_config(_FIELD, f"{_FIELD} selects {module.name}, a norm, which cannot have LoRA; omit it.")
    return linears, embeddings


def plan_linear(
    module: TargetModule, path: str, config: LoraConfig, layout: BaseLayout, sizes: Sizes, tensors: Tensors
) -> ModulePlan:
    """Plan LoRA on a linear. `path`, the module's or its weight's, is matched with rank_pattern and alpha_pattern."""
    if config.use_dora:
        require(AdapterKind.DORA, layout, "use_dora")
    require_servable(module, _FIELD)
    rank, scaling = sizes.of(path)
    a_blocks, b_blocks = _blocks(module, rank, config, layout)
    reason = _reason(module)
    _check_not_pooled(module, rank, config, tensors)
    return ModulePlan(
        module=module,
        rank=rank,
        scaling=scaling,
        lora_a=tensors.take(keys.lora_a(module.name), (rank, module.in_features // a_blocks), reason),
        lora_b=tensors.take(keys.lora_b(module.name), (module.out_features, rank // b_blocks), reason),
        bias=tensors.take(keys.lora_b_bias(module.name), (module.out_features,), f"{reason} and lora_bias is true")
        if config.lora_bias
        else None,
        magnitude=tensors.take(keys.magnitude(module.name), (module.out_features,), f"{reason} and use_dora is true")
        if config.use_dora
        else None,
        a_blocks=a_blocks,
        b_blocks=b_blocks,
    )


def _plan_embedding(
    module: TargetModule, config: LoraConfig, layout: BaseLayout, sizes: Sizes, tensors: Tensors
) -> EmbeddingPlan:
    require(AdapterKind.EMBEDDING, layout, _FIELD, f"the embedding {module.name}")
    if config.use_dora:
        require(AdapterKind.DORA, layout, "use_dora")
    require_servable(module, _FIELD)
    for field in ("lora_bias", "use_bdlora", "alora_invocation_tokens"):
        if getattr(config, field):
            raise in_config(
                field, f"{field} cannot be combined with the embedding {module.name} in PEFT; leave it out."
            )
    rank, scaling = sizes.of(module.name)
    reason = _reason(module)
    return EmbeddingPlan(
        module=module,
        rank=rank,
        scaling=scaling,
        lora_a=tensors.take(keys.embedding_a(module.name), (rank, module.in_features), reason),
        lora_b=tensors.take(keys.embedding_b(module.name), (module.out_features, rank), reason),
        magnitude=tensors.take(keys.magnitude(module.name), (module.out_features,), f"{reason} and use_dora is true")
        if config.use_dora
        else None,
    )


def _reason(module: TargetModule) -> str:
    return f"target_modules selects {module.name} ({module.in_features} in, {module.out_features} out)"


def _blocks(module: TargetModule, rank: int, config: LoraConfig, layout: BaseLayout) -> tuple[int, int]:
    if config.use_bdlora is None:
        return 1, 1
    a_blocks, b_blocks = config.use_bdlora.blocks_of(module.name)
    if max(a_blocks, b_blocks) > 1:
        require(AdapterKind.BLOCK_DIAGONAL, layout, "use_bdlora")
    if rank % max(a_blocks, b_blocks) or module.in_features % a_blocks or module.out_features % b_blocks:
        raise in_config(
            "use_bdlora", f"use_bdlora divides {module.name} into {config.use_bdlora.blocks} unequal blocks."
        )
    return a_blocks, b_blocks


def _check_not_pooled(module: TargetModule, rank: int, config: LoraConfig, tensors: Tensors) -> None:
    """Reject QALoRA on a base quantized with GPTQ: its A takes averages of neighbouring inputs, so it is smaller."""
    name = keys.lora_a(module.name)
    shape = tensors.shape(name)
    if config.use_qalora and shape is not None and shape != (rank, module.in_features):
        raise in_tensor(
            name,
            f"The adapter was trained with QALoRA on a base quantized with GPTQ, which is not the base served here; "
            f"{module.name} would need an A of {[rank, module.in_features]}. Train with use_qalora=false.",
        )
