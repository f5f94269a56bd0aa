"""Bodies of /v1/adapters."""

from typing import Annotated

from pydantic import Field, StringConstraints

from loragate.adapter_store.desired_state import Tier
from loragate.gateway.schemas.limits import LimitsBody
from loragate.prompts.body import Body

Tag = Annotated[str, StringConstraints(max_length=1000)]


class AdapterPatch(Body):
    """PATCH /v1/adapters/{name}: what is absent or null stays as it is; null within `limits` lifts one."""

    limits: LimitsBody = Field(default_factory=LimitsBody)
    tags: Annotated[list[Tag], Field(max_length=1000)] | None = None
    description: Annotated[str, StringConstraints(max_length=10_000)] | None = None


class AdapterKeep(Body):
    """PATCH /admin/v1/adapters/{adapter_id}."""

    keep: Annotated[Tier, Field(strict=False)] | None
