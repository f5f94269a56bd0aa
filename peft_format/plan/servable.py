"""Checks that the engine serves what an adapter needs; the errors name an alternative."""

from loragate.peft_format.errors import in_config
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, BaseParameter, TargetModule

_INSTEAD = {
    AdapterKind.DORA: "DoRA is not served here; train with use_dora=false, or merge the adapter",
    AdapterKind.EMBEDDING: "LoRA on embeddings is not served here; train without targeting them",
    AdapterKind.BLOCK_DIAGONAL: "block-diagonal LoRA is not served here; train without use_bdlora",
    AdapterKind.PARAMETERS: "LoRA on experts and routers is not served here; target the attention's modules instead",
    AdapterKind.REPLACED: "fully trained modules are not served here; target them with LoRA, or merge the adapter",
    AdapterKind.TRAINED_TOKENS: "trained token embeddings are not served here; train without them",
    AdapterKind.BIAS: 'trained biases of the base model are not served here; train with bias="none"',
    AdapterKind.CLASSIFIER: 'heads for labels are not served here; train with task_type="CAUSAL_LM"',
    AdapterKind.ACTIVATED: "activated LoRA is not served here; train without invocation tokens",
}


def require(kind: AdapterKind, layout: BaseLayout, field: str, selected: str = "") -> None:
    """Raise AdapterRejected, naming `field` and what it selected, if the engine does not serve this kind."""
    if kind not in layout.serves:
        raise in_config(field, f"{field} {f'selects {selected}' if selected else 'is set'}, but {_INSTEAD[kind]}.")


def require_servable(part: TargetModule | BaseParameter, field: str) -> None:
    """Raise AdapterRejected if no adapter may change this part of the model."""
    if not part.servable:
        name = part.name if isinstance(part, TargetModule) else part.path
        raise in_config(field, f"{field} selects {name}, which adapters cannot change here; train without it.")
