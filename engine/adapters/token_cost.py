"""The cost of serving a token in units of service, which virtual token counters count."""

import math

from loragate.peft_format.plan.layout import BaseLayout, ModuleKind
from loragate.peft_format.plan.plan import AdapterPlan

PROMPT_UNITS = 1.0
GENERATED_UNITS = 2.0
"""The weights of Sheng et al. (arXiv:2401.00588, §5.1): generated tokens are computed one per step."""


def token_cost(plan: AdapterPlan, layout: BaseLayout) -> float:
    """Return the cost of a token under this adapter relative to the base model alone.

    It is 1 + the adapter's multiplications per token ÷ the base model's. Rank 64 on every linear of a Llama-3-8B costs
    1.02, on a model 256 wide 1.5. Looking up an embedding multiplies nothing in the base model and rank × width in the
    adapter. One expert of a mixture is counted, in the base model as in the adapter.
    """
    linears = (m for m in layout.modules.values() if m.kind in (ModuleKind.LINEAR, ModuleKind.CONV1D))
    base = sum(m.in_features * m.out_features for m in linears)
    base += sum(math.prod(p.shape[-2:]) for p in layout.parameters.values() if len(p.shape) > 1)
    adapter = (
        sum(p.rank * (p.module.in_features + p.module.out_features) for p in plan.modules.values())
        + sum(p.rank * p.module.out_features for p in plan.embeddings.values())
        + sum(p.rank * (p.in_features + p.out_features) for p in plan.parameters.values())
    )
    return 1.0 + adapter / base
