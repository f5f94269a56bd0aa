"""The body of POST /v1/embeddings."""

from typing import Annotated, Literal

from pydantic import Field

from loragate.gateway.schemas.inference.openai_fields import IGNORED
from loragate.gateway.schemas.inference.prompts import Prompt, Prompts
from loragate.gateway.schemas.inference.sampling import ModelName, Priority, User
from loragate.prompts.bodies import ClientBody, ExtraFields
from loragate.v1 import engine_pb2 as pb

MAX_INPUTS = 2048
_POOLING = {"last": pb.POOLING_LAST, "mean": pb.POOLING_MEAN}


class EmbeddingRequest(ClientBody):
    """OpenAI's embedding request, extended by `priority`, `pooling` and `normalize`. Null means the default."""

    extras = ExtraFields(ignored=IGNORED)

    model: ModelName
    input: Annotated[Prompts, Field(max_length=MAX_INPUTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, description="No other value than the model's width is accepted.")] | None = (
        None
    )
    user: User | None = None
    safety_identifier: User | None = None
    priority: Priority | None = None
    pooling: Literal["last", "mean"] | None = None
    normalize: bool | None = None

    @property
    def sticky_key(self) -> str | None:
        """The key by which a version of an alias is chosen; None for a random choice."""
        return self.user or self.safety_identifier or None

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
