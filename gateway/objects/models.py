"""Models."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.gateway.objects.response_head import UnixTime


class Model(TypedDict):
    """`parent` is the base model's id; null for the base model itself. `owned_by` is `loragate` for that, the tenant's
    id for what a fine-tuning job of it has made, and `tenant` for its other adapters."""

    id: str
    object: Literal["model"]
    created: UnixTime
    owned_by: str
    parent: str | None


class DeletedModel(TypedDict):
    """It is gone."""

    id: str
    object: Literal["model"]
    deleted: Literal[True]


class ModelList(TypedDict):
    """All that the key may use, in one page."""

    object: Literal["list"]
    data: list[Model]
