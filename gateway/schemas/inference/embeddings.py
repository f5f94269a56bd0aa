"""The body of POST /v1/embeddings."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from loragate.gateway.schemas.inference.prompts import Prompt, Prompts
from loragate.gateway.schemas.inference.sampling import ModelName, Priority, User
from loragate.prompts.validation import Body
from loragate.v1 import engine_pb2 as pb

MAX_INPUTS = 2048
_POOLING = {"last": pb.POOLING_LAST, "mean": pb.POOLING_MEAN}


class EmbeddingRequest(Body):
    """OpenAI's embedding request, extended by `priority`, `pooling` and `normalize`. Null means the default."""

    model: ModelName
    input: Annotated[Prompts, Field(max_length=MAX_INPUTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[Any, WithJsonSchema({"type": "null"})] = None
    user: User | None = None
    priority: Priority | None = None
    pooling: Literal["last", "mean"] | None = None
    normalize: bool | None = None

    @field_validator("dimensions")
    @classmethod
    def _is_not_given(cls, value: Any) -> None:
        if value is not None:
            words = "shorter vectors need a model that was trained for them: leave the field out"
            raise PydanticCustomError("dimensions", words, {})

    @property
    def inputs(self) -> list[Prompt]:
        """The texts, in order."""
        return self.input

    @property
    def engine_pooling(self) -> pb.Pooling:
        """The pooling; by default the last token's, the only one in a causal model that attends to the whole text."""
        return _POOLING[self.pooling or "last"]

    @property
    def unit_length(self) -> bool:
        """Whether vectors are divided by their norm, as OpenAI's are."""
        return self.normalize is not False
