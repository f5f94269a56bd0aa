"""What a job asks for against what the base model and its tenant allow: told now rather than when it has waited."""

from typing import Any

from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.quotas import check_rank
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.resources.fine_tuning import JobCreate
from loragate.v1 import engine_pb2 as pb

_OPEN_RANK = 16


def checked_hyperparameters(body: JobCreate, manifest: pb.Manifest, limits: TenantLimits) -> dict[str, Any]:
    """Those that are asked for. Raises InvalidRequest, and Conflict for a rank that the tenant may not have."""
    asked = body.asked
    if asked.lora_rank != "auto":
        if asked.lora_rank > manifest.max_lora_rank:
            raise _invalid(body, "lora_rank", f"this server serves ranks up to {manifest.max_lora_rank}")
        check_rank(limits, asked.lora_rank)
    if asked.target_modules != "all-linear":
        for position, target in enumerate(asked.target_modules):
            if not any(_is_meant(module.name, target) for module in manifest.modules if module.servable):
                raise _invalid(body, f"target_modules.{position}", "the base model has no such module to adapt")
            if _is_meant(manifest.output_head, target):
                raise _invalid(
                    body, f"target_modules.{position}", "the base model's head cannot be adapted in training"
                )
    return asked.model_dump(mode="json", exclude_unset=True)


def open_rank(limits: TenantLimits) -> int | None:
    """The rank of an adapter of which none is asked for, where the tenant may not have the usual one."""
    most = limits.max_adapter_rank
    if most is None or most >= _OPEN_RANK:
        return None
    check_rank(limits, max(1, most))
    return most


def _is_meant(module: str, target: str) -> bool:
    """As PEFT reads a list of targets."""
    return module == target or module.endswith(f".{target}")


def _invalid(body: JobCreate, field: str, words: str) -> InvalidRequest:
    param = f"{body.path}.{field}"
    return InvalidRequest(f"Invalid '{param}': {words}.", param=param, code="invalid_value")
