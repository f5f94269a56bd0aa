"""Models, as in OpenAI's API: the base model and adapters."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.gateway.objects.inference.completion_head import UnixTime


class Model(TypedDict):
    """`parent` is the base model's id, and null for the base model itself. `owned_by` is `loragate` for the base model,
    the tenant's id for the result of one of its fine-tuning jobs, and `tenant` for its other adapters."""

    id: str
    object: Literal["model"]
    created: UnixTime
    owned_by: str
    parent: str | None


class DeletedModel(TypedDict):
    """Confirms that the model was deleted."""

    id: str
    object: Literal["model"]
    deleted: Literal[True]


class ModelList(TypedDict):
    """All models that the key may use, in one page."""

    object: Literal["list"]
    data: list[Model]


def model_object(id_: str, created: int, owner: str, *, parent: str | None) -> Model:
    """Return a model."""
    return {"id": id_, "object": "model", "created": created, "owned_by": owner, "parent": parent}


def deleted_model(id_: str) -> DeletedModel:
    """Return the confirmation that a model was deleted."""
    return {"id": id_, "object": "model", "deleted": True}
