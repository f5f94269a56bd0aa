"""The body of PUT /v1/adapters/{name}/aliases/{alias}."""

from typing import Annotated

from pydantic import Field

from loragate.prompts.body import Body


class AliasTargetBody(Body):
    """One arm."""

    version: Annotated[int, Field(ge=1, lt=1 << 31)]
    weight: Annotated[int, Field(ge=1, lt=1 << 31)] = 1


class AliasPut(Body):
    """The alias points at these versions and no others afterwards."""

    targets: Annotated[list[AliasTargetBody], Field(fail_fast=True, min_length=1, max_length=64)]
