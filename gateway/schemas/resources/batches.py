"""The body of POST /v1/batches."""

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

from loragate.adapter_store.batches.batch import LONGEST_WINDOW, SHORTEST_WINDOW
from loragate.gateway.schemas.resources.fine_tuning import Labels
from loragate.gateway.schemas.resources.uploads import ExpiresAfter
from loragate.prompts.bodies import Body

BatchEndpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/classify"]

_WINDOW = re.compile(r"([1-9][0-9]{0,2})([hd])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1)}


class BatchCreate(Body):
    """Body of POST /v1/batches, as in OpenAI's API. `completion_window` is a number of hours or days, such as `24h`."""

    input_file_id: Annotated[str, StringConstraints(max_length=64)]
    endpoint: BatchEndpoint
    completion_window: Annotated[str, StringConstraints(max_length=8), Field(examples=["24h"])]
    metadata: Labels | None = None
    output_expires_after: ExpiresAfter | None = None

    @field_validator("completion_window")
    @classmethod
    def _is_window(cls, text: str) -> str:
        found = _WINDOW.fullmatch(text)
        if found is None or not SHORTEST_WINDOW <= int(found[1]) * _UNITS[found[2]] <= LONGEST_WINDOW:
            words = "it must be a number of hours or days such as `24h` or `7d`, from `1h` to `30d`"
            raise PydanticCustomError("completion_window", "{message}", {"message": words})
        return text

    @property
    def window(self) -> timedelta:
        """The time in which the batch is to be completed."""
        found = _WINDOW.fullmatch(self.completion_window)
        assert found is not None
        return int(found[1]) * _UNITS[found[2]]
