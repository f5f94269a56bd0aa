from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModuleKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODULE_KIND_UNSPECIFIED: _ClassVar[ModuleKind]
    MODULE_KIND_LINEAR: _ClassVar[ModuleKind]
    MODULE_KIND_CONV1D: _ClassVar[ModuleKind]
    MODULE_KIND_EMBEDDING: _ClassVar[ModuleKind]
    MODULE_KIND_NORM: _ClassVar[ModuleKind]

class Pooling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POOLING_UNSPECIFIED: _ClassVar[Pooling]
    POOLING_LAST: _ClassVar[Pooling]
    POOLING_MEAN: _ClassVar[Pooling]
    POOLING_CLASSIFY: _ClassVar[Pooling]
    POOLING_CLASSIFY_TOKENS: _ClassVar[Pooling]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_ERROR: _ClassVar[FinishReason]
    FINISH_REASON_ABORTED: _ClassVar[FinishReason]

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CODE_UNSPECIFIED: _ClassVar[ErrorCode]
    ERROR_CODE_INVALID_REQUEST: _ClassVar[ErrorCode]
    ERROR_CODE_ADAPTER_UNAVAILABLE: _ClassVar[ErrorCode]
    ERROR_CODE_NON_FINITE: _ClassVar[ErrorCode]
    ERROR_CODE_INTERNAL: _ClassVar[ErrorCode]
    ERROR_CODE_OVERLOADED: _ClassVar[ErrorCode]

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_DISK: _ClassVar[Tier]
    TIER_HOST: _ClassVar[Tier]
    TIER_DEVICE: _ClassVar[Tier]
MODULE_KIND_UNSPECIFIED: ModuleKind
MODULE_KIND_LINEAR: ModuleKind
MODULE_KIND_CONV1D: ModuleKind
MODULE_KIND_EMBEDDING: ModuleKind
MODULE_KIND_NORM: ModuleKind
POOLING_UNSPECIFIED: Pooling
POOLING_LAST: Pooling
POOLING_MEAN: Pooling
POOLING_CLASSIFY: Pooling
POOLING_CLASSIFY_TOKENS: Pooling
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_ERROR: FinishReason
FINISH_REASON_ABORTED: FinishReason
ERROR_CODE_UNSPECIFIED: ErrorCode
ERROR_CODE_INVALID_REQUEST: ErrorCode
ERROR_CODE_ADAPTER_UNAVAILABLE: ErrorCode
ERROR_CODE_NON_FINITE: ErrorCode
ERROR_CODE_INTERNAL: ErrorCode
ERROR_CODE_OVERLOADED: ErrorCode
TIER_UNSPECIFIED: Tier
TIER_DISK: Tier
TIER_HOST: Tier
TIER_DEVICE: Tier

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExportRequest(_message.Message):
    __slots__ = ("adapter", "base_digest", "size_only")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_ONLY_FIELD_NUMBER: _ClassVar[int]
    adapter: AdapterRef
    base_digest: str
    size_only: bool
    def __init__(self, adapter: _Optional[_Union[AdapterRef, _Mapping]] = ..., base_digest: _Optional[str] = ..., size_only: bool = ...) -> None: ...

class ExportPart(_message.Message):
    __slots__ = ("size_bytes", "data")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    data: bytes
    def __init__(self, size_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class TargetModule(_message.Message):
    __slots__ = ("name", "kind", "in_features", "out_features", "servable", "bias")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    IN_FEATURES_FIELD_NUMBER: _ClassVar[int]
    OUT_FEATURES_FIELD_NUMBER: _ClassVar[int]
    SERVABLE_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: ModuleKind
    in_features: int
    out_features: int
    servable: bool
    bias: bool
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[ModuleKind, str]] = ..., in_features: _Optional[int] = ..., out_features: _Optional[int] = ..., servable: bool = ..., bias: bool = ...) -> None: ...

class BaseParameter(_message.Message):
    __slots__ = ("module", "name", "shape", "transposed", "servable")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSED_FIELD_NUMBER: _ClassVar[int]
    SERVABLE_FIELD_NUMBER: _ClassVar[int]
    module: str
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    transposed: bool
    servable: bool
    def __init__(self, module: _Optional[str] = ..., name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., transposed: bool = ..., servable: bool = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("model_id", "base_digest", "architecture", "model_type", "num_layers", "vocab_size", "max_model_len", "modules", "tied_embeddings", "tokenizer_json", "chat_template", "special_tokens", "eos_token_ids", "dtype", "device", "adapter_slots", "max_lora_rank", "kv_capacity_tokens", "add_bos_token", "notes", "sampling_defaults", "parameters", "adapter_kinds", "input_embedding", "output_head", "classifier_heads", "pad_token_id")
    class SpecialTokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    TIED_EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_JSON_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MAX_LORA_RANK_FIELD_NUMBER: _ClassVar[int]
    KV_CAPACITY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADD_BOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_KINDS_FIELD_NUMBER: _ClassVar[int]
    INPUT_EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_HEAD_FIELD_NUMBER: _ClassVar[int]
    CLASSIFIER_HEADS_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    base_digest: str
    architecture: str
    model_type: str
    num_layers: int
    vocab_size: int
    max_model_len: int
    modules: _containers.RepeatedCompositeFieldContainer[TargetModule]
    tied_embeddings: bool
    tokenizer_json: bytes
    chat_template: str
    special_tokens: _containers.ScalarMap[str, str]
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    device: str
    adapter_slots: int
    max_lora_rank: int
    kv_capacity_tokens: int
    add_bos_token: bool
    notes: _containers.RepeatedScalarFieldContainer[str]
    sampling_defaults: SamplingDefaults
    parameters: _containers.RepeatedCompositeFieldContainer[BaseParameter]
    adapter_kinds: _containers.RepeatedScalarFieldContainer[str]
    input_embedding: str
    output_head: str
    classifier_heads: _containers.RepeatedCompositeFieldContainer[ClassifierHead]
    pad_token_id: int
    def __init__(self, model_id: _Optional[str] = ..., base_digest: _Optional[str] = ..., architecture: _Optional[str] = ..., model_type: _Optional[str] = ..., num_layers: _Optional[int] = ..., vocab_size: _Optional[int] = ..., max_model_len: _Optional[int] = ..., modules: _Optional[_Iterable[_Union[TargetModule, _Mapping]]] = ..., tied_embeddings: bool = ..., tokenizer_json: _Optional[bytes] = ..., chat_template: _Optional[str] = ..., special_tokens: _Optional[_Mapping[str, str]] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., adapter_slots: _Optional[int] = ..., max_lora_rank: _Optional[int] = ..., kv_capacity_tokens: _Optional[int] = ..., add_bos_token: bool = ..., notes: _Optional[_Iterable[str]] = ..., sampling_defaults: _Optional[_Union[SamplingDefaults, _Mapping]] = ..., parameters: _Optional[_Iterable[_Union[BaseParameter, _Mapping]]] = ..., adapter_kinds: _Optional[_Iterable[str]] = ..., input_embedding: _Optional[str] = ..., output_head: _Optional[str] = ..., classifier_heads: _Optional[_Iterable[_Union[ClassifierHead, _Mapping]]] = ..., pad_token_id: _Optional[int] = ...) -> None: ...

class ClassifierHead(_message.Message):
    __slots__ = ("task", "name", "in_features", "bias")
    TASK_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IN_FEATURES_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    task: str
    name: str
    in_features: int
    bias: bool
    def __init__(self, task: _Optional[str] = ..., name: _Optional[str] = ..., in_features: _Optional[int] = ..., bias: bool = ...) -> None: ...

class SamplingDefaults(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ...) -> None: ...

class ClientFrame(_message.Message):
    __slots__ = ("submit", "abort", "adapter_part", "pins", "prefetch", "retire", "preload", "more")
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_PART_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    RETIRE_FIELD_NUMBER: _ClassVar[int]
    PRELOAD_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    submit: Submit
    abort: Abort
    adapter_part: AdapterPart
    pins: Pins
    prefetch: Prefetch
    retire: Retire
    preload: Preload
    more: _containers.RepeatedCompositeFieldContainer[ClientFrame]
    def __init__(self, submit: _Optional[_Union[Submit, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., adapter_part: _Optional[_Union[AdapterPart, _Mapping]] = ..., pins: _Optional[_Union[Pins, _Mapping]] = ..., prefetch: _Optional[_Union[Prefetch, _Mapping]] = ..., retire: _Optional[_Union[Retire, _Mapping]] = ..., preload: _Optional[_Union[Preload, _Mapping]] = ..., more: _Optional[_Iterable[_Union[ClientFrame, _Mapping]]] = ...) -> None: ...

class Pins(_message.Message):
    __slots__ = ("adapters",)
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterRef]
    def __init__(self, adapters: _Optional[_Iterable[_Union[AdapterRef, _Mapping]]] = ...) -> None: ...

class Prefetch(_message.Message):
    __slots__ = ("adapters",)
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterRef]
    def __init__(self, adapters: _Optional[_Iterable[_Union[AdapterRef, _Mapping]]] = ...) -> None: ...

class Preload(_message.Message):
    __slots__ = ("adapters",)
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterRef]
    def __init__(self, adapters: _Optional[_Iterable[_Union[AdapterRef, _Mapping]]] = ...) -> None: ...

class Retire(_message.Message):
    __slots__ = ("adapters",)
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterRef]
    def __init__(self, adapters: _Optional[_Iterable[_Union[AdapterRef, _Mapping]]] = ...) -> None: ...

class AdapterRef(_message.Message):
    __slots__ = ("tenant_id", "digest")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    digest: str
    def __init__(self, tenant_id: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "stop_token_ids", "ignore_eos", "min_tokens", "top_logprobs")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: _containers.ScalarMap[int, float]
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    min_tokens: int
    top_logprobs: int
    def __init__(self, max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., ignore_eos: bool = ..., min_tokens: _Optional[int] = ..., top_logprobs: _Optional[int] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "prompt_token_ids", "adapter", "sampling", "n", "share", "cache_salt", "grammar", "draft_tokens", "pooling", "traceparent", "thinking", "prompt_logprobs", "prompt_only")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    THINKING_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_ONLY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    adapter: AdapterRef
    sampling: Sampling
    n: int
    share: Share
    cache_salt: bytes
    grammar: Grammar
    draft_tokens: int
    pooling: Pooling
    traceparent: str
    thinking: Thinking
    prompt_logprobs: int
    prompt_only: bool
    def __init__(self, request_id: _Optional[int] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., adapter: _Optional[_Union[AdapterRef, _Mapping]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., n: _Optional[int] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., cache_salt: _Optional[bytes] = ..., grammar: _Optional[_Union[Grammar, _Mapping]] = ..., draft_tokens: _Optional[int] = ..., pooling: _Optional[_Union[Pooling, str]] = ..., traceparent: _Optional[str] = ..., thinking: _Optional[_Union[Thinking, _Mapping]] = ..., prompt_logprobs: _Optional[int] = ..., prompt_only: bool = ...) -> None: ...

class Thinking(_message.Message):
    __slots__ = ("end", "end_marker", "max_tokens", "open", "start")
    END_FIELD_NUMBER: _ClassVar[int]
    END_MARKER_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    end: _containers.RepeatedScalarFieldContainer[int]
    end_marker: _containers.RepeatedScalarFieldContainer[int]
    max_tokens: int
    open: bool
    start: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, end: _Optional[_Iterable[int]] = ..., end_marker: _Optional[_Iterable[int]] = ..., max_tokens: _Optional[int] = ..., open: bool = ..., start: _Optional[_Iterable[int]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("tenant_id", "weight", "priority", "deadline_ms", "elsewhere", "batch")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    weight: float
    priority: int
    deadline_ms: int
    elsewhere: float
    batch: bool
    def __init__(self, tenant_id: _Optional[str] = ..., weight: _Optional[float] = ..., priority: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., elsewhere: _Optional[float] = ..., batch: bool = ...) -> None: ...

class Grammar(_message.Message):
    __slots__ = ("json_schema", "json_object", "regex", "choice", "lark")
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    JSON_OBJECT_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    LARK_FIELD_NUMBER: _ClassVar[int]
    json_schema: str
    json_object: bool
    regex: str
    choice: Choice
    lark: str
    def __init__(self, json_schema: _Optional[str] = ..., json_object: bool = ..., regex: _Optional[str] = ..., choice: _Optional[_Union[Choice, _Mapping]] = ..., lark: _Optional[str] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("options",)
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    options: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, options: _Optional[_Iterable[str]] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("request_id", "index")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    index: int
    def __init__(self, request_id: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class AdapterPart(_message.Message):
    __slots__ = ("adapter", "config_json", "tensors", "last", "error")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    adapter: AdapterRef
    config_json: bytes
    tensors: bytes
    last: bool
    error: str
    def __init__(self, adapter: _Optional[_Union[AdapterRef, _Mapping]] = ..., config_json: _Optional[bytes] = ..., tensors: _Optional[bytes] = ..., last: bool = ..., error: _Optional[str] = ...) -> None: ...

class EngineFrame(_message.Message):
    __slots__ = ("step", "adapter_wanted", "heartbeat", "load")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_WANTED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    step: StepOutput
    adapter_wanted: AdapterRef
    heartbeat: Heartbeat
    load: Load
    def __init__(self, step: _Optional[_Union[StepOutput, _Mapping]] = ..., adapter_wanted: _Optional[_Union[AdapterRef, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("request_seconds", "active_weight", "tenants", "served")
    REQUEST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    request_seconds: float
    active_weight: float
    tenants: _containers.RepeatedCompositeFieldContainer[TenantQueue]
    served: _containers.RepeatedCompositeFieldContainer[TenantService]
    def __init__(self, request_seconds: _Optional[float] = ..., active_weight: _Optional[float] = ..., tenants: _Optional[_Iterable[_Union[TenantQueue, _Mapping]]] = ..., served: _Optional[_Iterable[_Union[TenantService, _Mapping]]] = ...) -> None: ...

class TenantService(_message.Message):
    __slots__ = ("tenant_id", "units")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    units: float
    def __init__(self, tenant_id: _Optional[str] = ..., units: _Optional[float] = ...) -> None: ...

class TenantQueue(_message.Message):
    __slots__ = ("tenant_id", "weight", "seconds")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    weight: float
    seconds: float
    def __init__(self, tenant_id: _Optional[str] = ..., weight: _Optional[float] = ..., seconds: _Optional[float] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StepOutput(_message.Message):
    __slots__ = ("deltas",)
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    deltas: _containers.RepeatedCompositeFieldContainer[Delta]
    def __init__(self, deltas: _Optional[_Iterable[_Union[Delta, _Mapping]]] = ...) -> None: ...

class EngineError(_message.Message):
    __slots__ = ("code", "message", "retry_after_ms", "own_queue")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    OWN_QUEUE_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    message: str
    retry_after_ms: int
    own_queue: bool
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., own_queue: bool = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("token_id", "logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("logprob", "top")
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class PromptLogprobs(_message.Message):
    __slots__ = ("logprobs", "ranks", "top", "top_token_ids", "top_logprobs")
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    top: int
    top_token_ids: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, logprobs: _Optional[_Iterable[float]] = ..., ranks: _Optional[_Iterable[int]] = ..., top: _Optional[int] = ..., top_token_ids: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("request_id", "index", "token_ids", "logprobs", "finish_reason", "error", "cached_tokens", "embedding", "timings", "computed", "prompt_logprobs")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    index: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    finish_reason: FinishReason
    error: EngineError
    cached_tokens: int
    embedding: _containers.RepeatedScalarFieldContainer[float]
    timings: Timings
    computed: Computed
    prompt_logprobs: PromptLogprobs
    def __init__(self, request_id: _Optional[int] = ..., index: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ..., cached_tokens: _Optional[int] = ..., embedding: _Optional[_Iterable[float]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., computed: _Optional[_Union[Computed, _Mapping]] = ..., prompt_logprobs: _Optional[_Union[PromptLogprobs, _Mapping]] = ...) -> None: ...

class Computed(_message.Message):
    __slots__ = ("prompt_tokens", "cached_tokens", "generated_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_seconds", "prefill_seconds")
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    queue_seconds: float
    prefill_seconds: float
    def __init__(self, queue_seconds: _Optional[float] = ..., prefill_seconds: _Optional[float] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("adapter_rows", "adapters_after", "tenants")
    ADAPTER_ROWS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_AFTER_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    adapter_rows: int
    adapters_after: str
    tenants: bool
    def __init__(self, adapter_rows: _Optional[int] = ..., adapters_after: _Optional[str] = ..., tenants: bool = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("steps", "running", "waiting", "waiting_for_adapter", "kv_blocks_used", "kv_blocks_total", "slots_used", "slots_total", "prompt_tokens", "generated_tokens", "preemptions", "adapter_loads", "adapter_evictions", "adapter_reads", "residents", "adapter_device", "adapter_host", "adapter_disk", "started_at", "requests", "stopped", "ran_to_length", "aborted", "shed", "failures", "queue_seconds", "time_to_first_token_seconds", "inter_token_latency_seconds", "step_seconds", "step_tokens", "step_sequences", "step_prefill_tokens", "recent_steps", "demand", "adapters", "more_adapters", "prefix_cache", "spec_decode_draft_tokens", "spec_decode_accepted_tokens", "tenants", "cuda_graph_steps", "cuda_graph_capture_failures", "cached", "threads", "backlog_seconds")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_ADAPTER_FIELD_NUMBER: _ClassVar[int]
    KV_BLOCKS_USED_FIELD_NUMBER: _ClassVar[int]
    KV_BLOCKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SLOTS_USED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_LOADS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_READS_FIELD_NUMBER: _ClassVar[int]
    RESIDENTS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DEVICE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_HOST_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DISK_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    RAN_TO_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    SHED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_FIRST_TOKEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INTER_TOKEN_LATENCY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEP_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    STEP_PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RECENT_STEPS_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    MORE_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_CACHE_FIELD_NUMBER: _ClassVar[int]
    SPEC_DECODE_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPEC_DECODE_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    CUDA_GRAPH_STEPS_FIELD_NUMBER: _ClassVar[int]
    CUDA_GRAPH_CAPTURE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    running: int
    waiting: int
    waiting_for_adapter: int
    kv_blocks_used: int
    kv_blocks_total: int
    slots_used: int
    slots_total: int
    prompt_tokens: int
    generated_tokens: int
    preemptions: int
    adapter_loads: int
    adapter_evictions: int
    adapter_reads: int
    residents: _containers.RepeatedCompositeFieldContainer[Resident]
    adapter_device: Room
    adapter_host: Room
    adapter_disk: Room
    started_at: float
    requests: int
    stopped: int
    ran_to_length: int
    aborted: int
    shed: int
    failures: _containers.RepeatedCompositeFieldContainer[Failures]
    queue_seconds: Histogram
    time_to_first_token_seconds: Histogram
    inter_token_latency_seconds: Histogram
    step_seconds: Histogram
    step_tokens: Histogram
    step_sequences: Histogram
    step_prefill_tokens: Histogram
    recent_steps: StepPercentiles
    demand: _containers.RepeatedCompositeFieldContainer[Demand]
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterRow]
    more_adapters: bool
    prefix_cache: PrefixCache
    spec_decode_draft_tokens: int
    spec_decode_accepted_tokens: int
    tenants: _containers.RepeatedCompositeFieldContainer[TenantDemand]
    cuda_graph_steps: int
    cuda_graph_capture_failures: int
    cached: _containers.RepeatedCompositeFieldContainer[CachedAdapter]
    threads: int
    backlog_seconds: float
    def __init__(self, steps: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., waiting_for_adapter: _Optional[int] = ..., kv_blocks_used: _Optional[int] = ..., kv_blocks_total: _Optional[int] = ..., slots_used: _Optional[int] = ..., slots_total: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ..., adapter_loads: _Optional[int] = ..., adapter_evictions: _Optional[int] = ..., adapter_reads: _Optional[int] = ..., residents: _Optional[_Iterable[_Union[Resident, _Mapping]]] = ..., adapter_device: _Optional[_Union[Room, _Mapping]] = ..., adapter_host: _Optional[_Union[Room, _Mapping]] = ..., adapter_disk: _Optional[_Union[Room, _Mapping]] = ..., started_at: _Optional[float] = ..., requests: _Optional[int] = ..., stopped: _Optional[int] = ..., ran_to_length: _Optional[int] = ..., aborted: _Optional[int] = ..., shed: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[Failures, _Mapping]]] = ..., queue_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., time_to_first_token_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., inter_token_latency_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., step_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., step_tokens: _Optional[_Union[Histogram, _Mapping]] = ..., step_sequences: _Optional[_Union[Histogram, _Mapping]] = ..., step_prefill_tokens: _Optional[_Union[Histogram, _Mapping]] = ..., recent_steps: _Optional[_Union[StepPercentiles, _Mapping]] = ..., demand: _Optional[_Iterable[_Union[Demand, _Mapping]]] = ..., adapters: _Optional[_Iterable[_Union[AdapterRow, _Mapping]]] = ..., more_adapters: bool = ..., prefix_cache: _Optional[_Union[PrefixCache, _Mapping]] = ..., spec_decode_draft_tokens: _Optional[int] = ..., spec_decode_accepted_tokens: _Optional[int] = ..., tenants: _Optional[_Iterable[_Union[TenantDemand, _Mapping]]] = ..., cuda_graph_steps: _Optional[int] = ..., cuda_graph_capture_failures: _Optional[int] = ..., cached: _Optional[_Iterable[_Union[CachedAdapter, _Mapping]]] = ..., threads: _Optional[int] = ..., backlog_seconds: _Optional[float] = ...) -> None: ...

class TenantDemand(_message.Message):
    __slots__ = ("tenant_id", "running", "waiting")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    running: int
    waiting: int
    def __init__(self, tenant_id: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class Failures(_message.Message):
    __slots__ = ("code", "count")
    CODE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    count: int
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., count: _Optional[int] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("bounds", "counts", "sum")
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[float]
    counts: _containers.RepeatedScalarFieldContainer[int]
    sum: float
    def __init__(self, bounds: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ..., sum: _Optional[float] = ...) -> None: ...

class StepPercentiles(_message.Message):
    __slots__ = ("steps", "p50", "p90", "p99")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    P50_FIELD_NUMBER: _ClassVar[int]
    P90_FIELD_NUMBER: _ClassVar[int]
    P99_FIELD_NUMBER: _ClassVar[int]
    steps: int
    p50: float
    p90: float
    p99: float
    def __init__(self, steps: _Optional[int] = ..., p50: _Optional[float] = ..., p90: _Optional[float] = ..., p99: _Optional[float] = ...) -> None: ...

class Demand(_message.Message):
    __slots__ = ("adapter", "id", "running", "waiting")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    adapter: AdapterRef
    id: str
    running: int
    waiting: int
    def __init__(self, adapter: _Optional[_Union[AdapterRef, _Mapping]] = ..., id: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class AdapterRow(_message.Message):
    __slots__ = ("adapter", "id", "requests", "prompt_tokens", "generated_tokens", "started", "queue_seconds", "first_tokens", "time_to_first_token_seconds", "loads")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_FIRST_TOKEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    adapter: AdapterRef
    id: str
    requests: int
    prompt_tokens: int
    generated_tokens: int
    started: int
    queue_seconds: float
    first_tokens: int
    time_to_first_token_seconds: float
    loads: int
    def __init__(self, adapter: _Optional[_Union[AdapterRef, _Mapping]] = ..., id: _Optional[str] = ..., requests: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., started: _Optional[int] = ..., queue_seconds: _Optional[float] = ..., first_tokens: _Optional[int] = ..., time_to_first_token_seconds: _Optional[float] = ..., loads: _Optional[int] = ...) -> None: ...

class PrefixCache(_message.Message):
    __slots__ = ("looked_up_tokens", "device_tokens", "host_tokens", "device_evictions", "host_evictions", "host", "tenants")
    LOOKED_UP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HOST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    HOST_EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    looked_up_tokens: int
    device_tokens: int
    host_tokens: int
    device_evictions: int
    host_evictions: int
    host: Room
    tenants: _containers.RepeatedCompositeFieldContainer[TenantPrefix]
    def __init__(self, looked_up_tokens: _Optional[int] = ..., device_tokens: _Optional[int] = ..., host_tokens: _Optional[int] = ..., device_evictions: _Optional[int] = ..., host_evictions: _Optional[int] = ..., host: _Optional[_Union[Room, _Mapping]] = ..., tenants: _Optional[_Iterable[_Union[TenantPrefix, _Mapping]]] = ...) -> None: ...

class TenantPrefix(_message.Message):
    __slots__ = ("tenant_id", "looked_up_tokens", "device_tokens", "host_tokens")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    LOOKED_UP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HOST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    looked_up_tokens: int
    device_tokens: int
    host_tokens: int
    def __init__(self, tenant_id: _Optional[str] = ..., looked_up_tokens: _Optional[int] = ..., device_tokens: _Optional[int] = ..., host_tokens: _Optional[int] = ...) -> None: ...

class TraceRequest(_message.Message):
    __slots__ = ("last_steps",)
    LAST_STEPS_FIELD_NUMBER: _ClassVar[int]
    last_steps: int
    def __init__(self, last_steps: _Optional[int] = ...) -> None: ...

class TraceResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...

class Resident(_message.Message):
    __slots__ = ("adapter", "slot", "sequences", "pinned", "id", "rank")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    adapter: AdapterRef
    slot: int
    sequences: int
    pinned: bool
    id: str
    rank: int
    def __init__(self, adapter: _Optional[_Union[AdapterRef, _Mapping]] = ..., slot: _Optional[int] = ..., sequences: _Optional[int] = ..., pinned: bool = ..., id: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class CachedAdapter(_message.Message):
    __slots__ = ("adapter", "id", "tier", "rank")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    adapter: AdapterRef
    id: str
    tier: Tier
    rank: int
    def __init__(self, adapter: _Optional[_Union[AdapterRef, _Mapping]] = ..., id: _Optional[str] = ..., tier: _Optional[_Union[Tier, str]] = ..., rank: _Optional[int] = ...) -> None: ...

class InventoryRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InventoryResponse(_message.Message):
    __slots__ = ("held",)
    HELD_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedCompositeFieldContainer[Held]
    def __init__(self, held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("adapter", "tier", "pinned")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    adapter: AdapterRef
    tier: Tier
    pinned: bool
    def __init__(self, adapter: _Optional[_Union[AdapterRef, _Mapping]] = ..., tier: _Optional[_Union[Tier, str]] = ..., pinned: bool = ...) -> None: ...

class Room(_message.Message):
    __slots__ = ("used_bytes", "total_bytes")
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    used_bytes: int
    total_bytes: int
    def __init__(self, used_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...
