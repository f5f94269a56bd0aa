"""The bodies of samplers, of requests to them, and of futures."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from loragate.gateway.schemas.training.runs import Path
from loragate.gateway.schemas.training.sessions import Number, SessionId, Text
from loragate.prompts.bodies import Body, field_error

SamplerId = Annotated[str, StringConstraints(min_length=1, max_length=128)]
RequestId = Annotated[str, StringConstraints(min_length=1, max_length=160)]
Token = Annotated[int, Field(ge=0, lt=1 << 31)]
MAX_SAMPLES = 128
MAX_TOP = 20


class SamplerCreate(Body):
    """Body of POST /api/v1/create_sampling_session."""

    session_id: SessionId
    sampling_session_seq_id: Number
    base_model: Text | None = None
    model_path: Path | None = None
    type: Literal["create_sampling_session"] = "create_sampling_session"


class PromptChunk(Body):
    """A part of a prompt; only text is supported."""

    tokens: list[Token]
    type: Text = "encoded_text"

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, document: Any) -> Any:
        if isinstance(document, dict) and document.get("type", "encoded_text") != "encoded_text":
            raise field_error("type", "only `encoded_text` is supported")
        return document


class Prompt(Body):
    """A prompt: its chunks are one sequence."""

    chunks: Annotated[list[PromptChunk], Field(max_length=4096)]

    @property
    def tokens(self) -> list[int]:
        """The tokens of all chunks."""
        return [token for chunk in self.chunks for token in chunk.tokens]


class SamplingParams(Body):
    """How tokens are drawn. Without `stop`, the model's own end tokens end a sample; an empty list means that nothing
    does."""

    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: (
        Annotated[str, StringConstraints(min_length=1, max_length=256)]
        | Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=256)]], Field(max_length=16)]
        | Annotated[list[Token], Field(max_length=64)]
        | None
    ) = None
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Field(ge=-1, lt=1 << 31)] = -1
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0

    @property
    def stop_strings(self) -> tuple[str, ...]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(each for each in given if isinstance(each, str))

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return tuple(each for each in self.stop or () if isinstance(each, int))


class SampleCreate(Body):
    """Body of POST /api/v1/asample."""

    sampling_session_id: SamplerId
    seq_id: Annotated[int, Field(ge=0, lt=1 << 62)]
    num_samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    prompt: Prompt
    sampling_params: SamplingParams
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] = 0
    topk_sample_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] = 0
    type: Literal["sample"] = "sample"

    @model_validator(mode="before")
    @classmethod
    def _is_supported(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        document = dict(document)
        for name, words in _REFUSED.items():
            if document.pop(name, None) not in (None, 0, False):
                raise field_error(name, words)
        return document


_REFUSED = {
    "base_model": "create a sampling session first: send `sampling_session_id`",
    "model_path": "create a sampling session first: send `sampling_session_id`",
    "prompt_alt_tokens_k": "it is not supported: sample with `max_tokens` 1 from each prefix",
    "prompt_logprobs_last_n": "it is not supported: all logprobs of the prompt are returned without it",
    "target_prompt_logprobs": "it is not supported: use `topk_prompt_logprobs`, or a forward pass of a training run",
    "record_stability_info": "it is for `stable_reinforce`, which is not supported: use `importance_sampling`",
}


class FutureRef(Body):
    """Body of POST /api/v1/retrieve_future and of POST /api/v1/cancel_future."""

    request_id: RequestId
    allow_metadata_only: bool = False
    type: Text | None = None
