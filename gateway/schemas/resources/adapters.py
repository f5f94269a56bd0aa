"""Bodies of /v1/adapters."""

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from loragate.adapter_store.adapters.desired_state import Tier
from loragate.gateway.schemas.lineage import LineageFields
from loragate.gateway.schemas.releases import Status
from loragate.gateway.schemas.resources.limits import LimitsBody
from loragate.prompts.body import Body
from loragate.prompts.findings import finding

_FileId = Annotated[str, StringConstraints(max_length=64)]
Tag = Annotated[str, StringConstraints(max_length=1000)]


class AdapterPatch(Body):
    """PATCH /v1/adapters/{name}: what is absent or null stays as it is; null within `limits` lifts one."""

    limits: LimitsBody = Field(default_factory=LimitsBody)
    tags: Annotated[list[Tag], Field(max_length=1000)] | None = None
    description: Annotated[str, StringConstraints(max_length=10_000)] | None = None
    status: Status | None = None


class AdapterKeep(Body):
    """PATCH /admin/v1/adapters/{adapter_id}."""

    keep: Annotated[Tier, Field(strict=False)] | None


class AdapterFromFiles(LineageFields):
    """POST /v1/adapters as JSON: of files that were uploaded before with the purpose `adapter`.

    The config is given as such a file, or as the text of one, which is kept byte for byte.
    """

    name: Annotated[str, StringConstraints(max_length=1024)]
    alias: Annotated[str, StringConstraints(max_length=1024)] | None = None
    tags: Annotated[list[Tag], Field(max_length=1000)] | None = None
    description: Annotated[str, StringConstraints(max_length=10_000)] | None = None
    tensors_file_id: _FileId
    config_file_id: _FileId | None = None
    adapter_config: Annotated[str, StringConstraints(max_length=1 << 20)] | None = None

    @model_validator(mode="after")
    def _has_one_config(self) -> "AdapterFromFiles":
        if (self.config_file_id is None) == (self.adapter_config is None):
            raise finding("adapter_config", "give one of adapter_config and config_file_id")
        return self
