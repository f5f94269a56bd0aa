"""Bounds of an adapter's values: the served dtype must hold the values and their products.

A tensor of finite numbers can still overflow once it is cast to the dtype that is served, once B has the scaling in
it, or once B·A is. No entry of scaling · B · A is larger than |scaling| · rank · max|B| · max|A|, and trained adapters
are many orders of magnitude below any dtype's maximum, so this bound is checked and no product is computed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loragate.peft_format.errors import in_tensor, quoted
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import AdapterPlan, EmbeddingPlan, ModulePlan, ParameterPlan, SplitFactors
from loragate.peft_format.safetensors.header import TensorSpec

_LARGEST = {"float32": 3.4028234663852886e38, "bfloat16": 3.3895313892515355e38, "float16": 65504.0}


@dataclass(frozen=True)
class _Product:
    """scaling · B · A, with sums over `rank` terms."""

    lora_a: TensorSpec
    lora_b: TensorSpec
    rank: int
    scaling: float


def check_bounds(plan: AdapterPlan, largest: Mapping[str, float], layout: BaseLayout) -> None:
    """Raise AdapterRejected naming the first tensor that is too large; `largest` is from `values.largest_values`."""
    end = _LARGEST.get(layout.dtype, _LARGEST["float32"])
    for spec in plan.tensors:
        if largest[spec.name] > end:
            raise _too_large(spec, f"holds {largest[spec.name]:.3g}", layout)
    for product in _products(plan):
        b = largest[product.lora_b.name] * abs(product.scaling)
        if b > end:
            raise _too_large(product.lora_b, f"holds {b:.3g} with the scaling {product.scaling:.3g} in it", layout)
        whole = product.rank * b * largest[product.lora_a.name]
        if whole > end:
            words = f"and {quoted(product.lora_a.name)} make a product of up to {whole:.3g}"
            raise _too_large(product.lora_b, words, layout)


def _products(plan: AdapterPlan) -> Iterator[_Product]:
    modules: list[ModulePlan | EmbeddingPlan] = [*plan.modules.values(), *plan.embeddings.values()]
    for module in modules:
        yield _Product(module.lora_a, module.lora_b, module.rank, module.scaling)
    for parameter in plan.parameters.values():
        yield from _of_parameter(parameter)


def _of_parameter(plan: ParameterPlan) -> Iterator[_Product]:
    if isinstance(plan.factors, SplitFactors):
        for branch in (branch for branches in plan.factors.experts for branch in branches):
            yield _Product(branch.lora_a, branch.lora_b, plan.rank, plan.scaling)
    else:
        yield _Product(plan.factors.lora_a, plan.factors.lora_b, plan.rank, plan.scaling)


def _too_large(spec: TensorSpec, words: str, layout: BaseLayout) -> Exception:
    return in_tensor(
        spec.name,
        f"The tensor {quoted(spec.name)} {words}, which does not fit into {layout.dtype}, "
        "the dtype of the model served here; train again.",
    )
