"""Bodies that change what an adapter, a version or an alias is to requests."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS
from loragate.prompts.body import Body
from loragate.prompts.findings import finding

DEFAULT_HOURS, MOST_HOURS = 24, 168
Status = Literal["ready", "disabled"]
Version = Annotated[int, Field(ge=1, lt=1 << 31)]


class VersionPatch(Body):
    """Takes a version out of service, or puts it back."""

    status: Status


class MetricsQuery(Body):
    """Of an alias: the last hours, a week at most."""

    hours: Annotated[int, Field(ge=1, le=MOST_HOURS)] = DEFAULT_HOURS


class Promotion(Body):
    """The alias points at this version alone afterwards, or at the one that another alias points at."""

    alias: str = DEFAULT_ALIAS
    version: Version | None = None
    from_alias: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "Promotion":
        if (self.version is None) == (self.from_alias is None):
            raise finding("version", "give either `version` or `from_alias`")
        return self


class Rollback(Body):
    """The alias goes back to what it pointed at before."""

    alias: str = DEFAULT_ALIAS
