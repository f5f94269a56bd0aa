"""The fields of both completion endpoints that control sampling and the end of a completion."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from loragate.engine.sequence.prompt_lookup import MAX_DRAFT_TOKENS
from loragate.gateway.schemas.inference.openai_fields import OF_COMPLETIONS, PromptCacheOptions
from loragate.prompts.bodies import Body, ClientBody, ExtraFields, field_error
from loragate.v1 import engine_pb2 as pb

MAX_TOP_LOGPROBS = 20
MAX_TOKENS = (1 << 31) - 1


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _integer_keys(value: Any) -> Any:
    # JSON's keys are strings; OpenAI writes token ids as keys.
    if not isinstance(value, dict):
        return value
    if not all(isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10 for key in value):
        raise ValueError("the keys must be token ids")
    return {int(key): bias for key, bias in value.items()}


Penalty = Annotated[float, Field(ge=-2, le=2)]
StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]
StopStrings = Annotated[list[StopString], Field(max_length=16)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 32)]
Bias = Annotated[float, Field(ge=-100, le=100)]
DecimalKey = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,10}$")]
Biases = Annotated[
    dict[TokenId, Bias],
    Field(max_length=1024),
    BeforeValidator(_integer_keys, json_schema_input_type=dict[DecimalKey, Bias]),
]
Priority = Annotated[int, Field(ge=-100, le=100)]
"""Our own field: among the tenant's waiting requests, those with a higher priority go first. (vLLM's field of this name
has the opposite order and applies to all requests.)"""


User = Annotated[str, StringConstraints(max_length=512)]
"""The end user of the request. An alias with several versions always gives a user the same version."""


PromptLogprobs = Annotated[
    int, Field(ge=0, le=MAX_TOP_LOGPROBS, description="vLLM's: the logprobs of the prompt's tokens. Not in streams.")
]


class StreamOptions(ClientBody):
    """The options of a stream."""

    extras = ExtraFields(ignored=("include_obfuscation",))

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None  # vLLM's: with `include_usage`, each chunk has the usage so far


def check_stream_options(options: Body | None, *, stream: bool | None) -> None:
    """Raise the error of `stream_options` in a request that does not stream."""
    if options is not None and not stream:
        raise field_error("stream_options", "it is only allowed when 'stream' is true")


class SamplingFields(ClientBody):
    """Null means the default, as in OpenAI's API. Fields that OpenAI does not have are named as in vLLM."""

    extras = OF_COMPLETIONS

    model: ModelName
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    best_of: Annotated[int, Field(ge=1, description="The same as `n`; no other value is accepted.")] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, description="0 means greedy, as a `temperature` of 0.")] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: Biases | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: Annotated[StopStrings, BeforeValidator(_as_list, json_schema_input_type=StopString | StopStrings)] | None = (
        None
    )

    top_k: Annotated[int, Field(ge=-1, le=MAX_TOKENS)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: PromptLogprobs | None = None
    draft_tokens: Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS)] | None = None  # our own field
    priority: Priority | None = None
    user: User | None = None
    safety_identifier: User | None = None  # OpenAI's newer name for the same
    prompt_cache_options: PromptCacheOptions | None = None  # without effect

    @model_validator(mode="after")
    def _check_fields(self) -> "SamplingFields":
        check_stream_options(self.stream_options, stream=self.stream)
        if self.prompt_logprobs is not None and self.stream:
            raise field_error("prompt_logprobs", "it is not available in a stream: leave out one of the two")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise field_error("best_of", "all completions are returned: leave it out, or send the value of 'n'")
        return self

    @property
    def sticky_key(self) -> str | None:
        """The key by which a version of an alias is chosen; None for a random choice."""
        return self.user or self.safety_identifier or None

    @property
    def wants_usage_event(self) -> bool:
        """Whether the last event of the stream reports the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        """Whether each event of the stream reports the usage so far."""
        return self.wants_usage_event and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def sampling(self, max_tokens: int, top_logprobs: int | None, defaults: pb.SamplingDefaults) -> pb.Sampling:
        """Return the engine's parameters. Fields that the request omits have the values that the model's authors
        recommend; if they recommend no temperature, it is 1, as in OpenAI's API."""
        recommended = defaults.temperature if defaults.HasField("temperature") else 1.0
        sampling = pb.Sampling(
            max_tokens=max_tokens,
            temperature=0.0 if self.top_p == 0 else recommended if self.temperature is None else self.temperature,
            top_k=max(0, defaults.top_k if self.top_k is None else self.top_k),
            top_p=self.top_p or defaults.top_p or 1.0,
            min_p=self.min_p or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias=self.logit_bias or {},
            stop_token_ids=self.stop_token_ids or (),
            ignore_eos=bool(self.ignore_eos),
            min_tokens=self.min_tokens or 0,
            top_logprobs=top_logprobs,
        )
        if self.seed is not None:
            sampling.seed = self.seed % (1 << 64)
        return sampling
