from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UploadRequest(_message.Message):
    __slots__ = ("name", "alias", "adapter_config", "adapter_model", "tags", "description", "notes", "dataset_digest", "parent_version", "evaluation", "signature")
    class EvaluationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_MODEL_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    DATASET_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PARENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    alias: str
    adapter_config: bytes
    adapter_model: bytes
    tags: str
    description: str
    notes: str
    dataset_digest: str
    parent_version: int
    evaluation: _containers.ScalarMap[str, float]
    signature: bytes
    def __init__(self, name: _Optional[str] = ..., alias: _Optional[str] = ..., adapter_config: _Optional[bytes] = ..., adapter_model: _Optional[bytes] = ..., tags: _Optional[str] = ..., description: _Optional[str] = ..., notes: _Optional[str] = ..., dataset_digest: _Optional[str] = ..., parent_version: _Optional[int] = ..., evaluation: _Optional[_Mapping[str, float]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class AdapterVersion(_message.Message):
    __slots__ = ("id", "name", "version", "digest", "status", "rank", "size_bytes", "base_model", "base_digest", "created_at", "object", "residency", "lineage", "reason", "deleted_at", "signer", "classifier")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DELETED_AT_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    CLASSIFIER_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    version: int
    digest: str
    status: str
    rank: int
    size_bytes: int
    base_model: str
    base_digest: str
    created_at: str
    object: str
    residency: str
    lineage: Lineage
    reason: str
    deleted_at: str
    signer: str
    classifier: Classifier
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., digest: _Optional[str] = ..., status: _Optional[str] = ..., rank: _Optional[int] = ..., size_bytes: _Optional[int] = ..., base_model: _Optional[str] = ..., base_digest: _Optional[str] = ..., created_at: _Optional[str] = ..., object: _Optional[str] = ..., residency: _Optional[str] = ..., lineage: _Optional[_Union[Lineage, _Mapping]] = ..., reason: _Optional[str] = ..., deleted_at: _Optional[str] = ..., signer: _Optional[str] = ..., classifier: _Optional[_Union[Classifier, _Mapping]] = ...) -> None: ...

class Classifier(_message.Message):
    __slots__ = ("task", "num_labels", "labels", "problem_type")
    TASK_FIELD_NUMBER: _ClassVar[int]
    NUM_LABELS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_TYPE_FIELD_NUMBER: _ClassVar[int]
    task: str
    num_labels: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    problem_type: str
    def __init__(self, task: _Optional[str] = ..., num_labels: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., problem_type: _Optional[str] = ...) -> None: ...

class Lineage(_message.Message):
    __slots__ = ("source", "dataset_digest", "parent_version", "evaluation", "notes")
    class EvaluationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DATASET_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PARENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    source: str
    dataset_digest: str
    parent_version: int
    evaluation: _containers.ScalarMap[str, float]
    notes: str
    def __init__(self, source: _Optional[str] = ..., dataset_digest: _Optional[str] = ..., parent_version: _Optional[int] = ..., evaluation: _Optional[_Mapping[str, float]] = ..., notes: _Optional[str] = ...) -> None: ...

class Adapter(_message.Message):
    __slots__ = ("id", "name", "latest_version", "aliases", "created_at", "updated_at", "object", "limits", "tags", "description", "residency", "status", "deleted_at")
    class AliasesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AliasTargets
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AliasTargets, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LATEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DELETED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    latest_version: int
    aliases: _containers.MessageMap[str, AliasTargets]
    created_at: str
    updated_at: str
    object: str
    limits: Limits
    tags: _containers.RepeatedScalarFieldContainer[str]
    description: str
    residency: str
    status: str
    deleted_at: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., latest_version: _Optional[int] = ..., aliases: _Optional[_Mapping[str, AliasTargets]] = ..., created_at: _Optional[str] = ..., updated_at: _Optional[str] = ..., object: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., tags: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ..., residency: _Optional[str] = ..., status: _Optional[str] = ..., deleted_at: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("requests_per_minute", "tokens_per_minute", "max_concurrency", "tokens_per_day", "tokens_per_month")
    REQUESTS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_DAY_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_MONTH_FIELD_NUMBER: _ClassVar[int]
    requests_per_minute: int
    tokens_per_minute: int
    max_concurrency: int
    tokens_per_day: int
    tokens_per_month: int
    def __init__(self, requests_per_minute: _Optional[int] = ..., tokens_per_minute: _Optional[int] = ..., max_concurrency: _Optional[int] = ..., tokens_per_day: _Optional[int] = ..., tokens_per_month: _Optional[int] = ...) -> None: ...

class AliasTargets(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[AliasTarget]
    def __init__(self, targets: _Optional[_Iterable[_Union[AliasTarget, _Mapping]]] = ...) -> None: ...

class AliasTarget(_message.Message):
    __slots__ = ("version", "weight")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    version: int
    weight: int
    def __init__(self, version: _Optional[int] = ..., weight: _Optional[int] = ...) -> None: ...

class ListAdaptersRequest(_message.Message):
    __slots__ = ("after", "limit", "search", "tags", "status")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    search: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    status: str
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ..., search: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., status: _Optional[str] = ...) -> None: ...

class ListAdaptersResponse(_message.Message):
    __slots__ = ("data", "has_more", "first_id", "last_id", "object")
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[Adapter]
    has_more: bool
    first_id: str
    last_id: str
    object: str
    def __init__(self, data: _Optional[_Iterable[_Union[Adapter, _Mapping]]] = ..., has_more: bool = ..., first_id: _Optional[str] = ..., last_id: _Optional[str] = ..., object: _Optional[str] = ...) -> None: ...

class GetAdapterRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UpdateAdapterRequest(_message.Message):
    __slots__ = ("name", "tags", "description", "status", "limits", "unlimited")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    UNLIMITED_FIELD_NUMBER: _ClassVar[int]
    name: str
    tags: Tags
    description: str
    status: str
    limits: Limits
    unlimited: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ..., description: _Optional[str] = ..., status: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., unlimited: _Optional[_Iterable[str]] = ...) -> None: ...

class Tags(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tags: _Optional[_Iterable[str]] = ...) -> None: ...

class SetAliasRequest(_message.Message):
    __slots__ = ("name", "alias", "targets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    alias: str
    targets: _containers.RepeatedCompositeFieldContainer[AliasTarget]
    def __init__(self, name: _Optional[str] = ..., alias: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[AliasTarget, _Mapping]]] = ...) -> None: ...

class DeleteAliasRequest(_message.Message):
    __slots__ = ("name", "alias")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    name: str
    alias: str
    def __init__(self, name: _Optional[str] = ..., alias: _Optional[str] = ...) -> None: ...

class AdapterAlias(_message.Message):
    __slots__ = ("id", "name", "alias", "targets", "object")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    alias: str
    targets: _containers.RepeatedCompositeFieldContainer[AliasTarget]
    object: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., alias: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[AliasTarget, _Mapping]]] = ..., object: _Optional[str] = ...) -> None: ...

class PromoteRequest(_message.Message):
    __slots__ = ("name", "alias", "version", "from_alias")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FROM_ALIAS_FIELD_NUMBER: _ClassVar[int]
    name: str
    alias: str
    version: int
    from_alias: str
    def __init__(self, name: _Optional[str] = ..., alias: _Optional[str] = ..., version: _Optional[int] = ..., from_alias: _Optional[str] = ...) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ("name", "alias")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    name: str
    alias: str
    def __init__(self, name: _Optional[str] = ..., alias: _Optional[str] = ...) -> None: ...

class UpdateVersionRequest(_message.Message):
    __slots__ = ("name", "version", "status")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    status: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., status: _Optional[str] = ...) -> None: ...

class AliasMetricsRequest(_message.Message):
    __slots__ = ("name", "alias", "hours")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    name: str
    alias: str
    hours: int
    def __init__(self, name: _Optional[str] = ..., alias: _Optional[str] = ..., hours: _Optional[int] = ...) -> None: ...

class AliasMetricsResponse(_message.Message):
    __slots__ = ("id", "name", "alias", "start", "end", "targets", "object")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    alias: str
    start: str
    end: str
    targets: _containers.RepeatedCompositeFieldContainer[AliasTargetMetrics]
    object: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., alias: _Optional[str] = ..., start: _Optional[str] = ..., end: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[AliasTargetMetrics, _Mapping]]] = ..., object: _Optional[str] = ...) -> None: ...

class AliasTargetMetrics(_message.Message):
    __slots__ = ("version", "weight", "requests", "errors", "prompt_tokens", "completion_tokens", "ttft_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    weight: int
    requests: int
    errors: int
    prompt_tokens: int
    completion_tokens: int
    ttft_ms: TtftMs
    def __init__(self, version: _Optional[int] = ..., weight: _Optional[int] = ..., requests: _Optional[int] = ..., errors: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., ttft_ms: _Optional[_Union[TtftMs, _Mapping]] = ...) -> None: ...

class TtftMs(_message.Message):
    __slots__ = ("mean", "p50", "p90", "p99", "p95")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    P50_FIELD_NUMBER: _ClassVar[int]
    P90_FIELD_NUMBER: _ClassVar[int]
    P99_FIELD_NUMBER: _ClassVar[int]
    P95_FIELD_NUMBER: _ClassVar[int]
    mean: float
    p50: int
    p90: int
    p99: int
    p95: int
    def __init__(self, mean: _Optional[float] = ..., p50: _Optional[int] = ..., p90: _Optional[int] = ..., p99: _Optional[int] = ..., p95: _Optional[int] = ...) -> None: ...

class RestoreAdapterRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RestoreVersionRequest(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class DeleteAdapterRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteAdapterResponse(_message.Message):
    __slots__ = ("id", "name", "version", "deleted", "object", "alias")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    version: int
    deleted: bool
    object: str
    alias: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., deleted: bool = ..., object: _Optional[str] = ..., alias: _Optional[str] = ...) -> None: ...

class ListVersionsRequest(_message.Message):
    __slots__ = ("name", "after", "limit", "status")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    name: str
    after: int
    limit: int
    status: str
    def __init__(self, name: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ..., status: _Optional[str] = ...) -> None: ...

class ListVersionsResponse(_message.Message):
    __slots__ = ("data", "has_more", "first_id", "last_id", "object")
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[AdapterVersion]
    has_more: bool
    first_id: str
    last_id: str
    object: str
    def __init__(self, data: _Optional[_Iterable[_Union[AdapterVersion, _Mapping]]] = ..., has_more: bool = ..., first_id: _Optional[str] = ..., last_id: _Optional[str] = ..., object: _Optional[str] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class DeleteVersionRequest(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class ImportRequest(_message.Message):
    __slots__ = ("source", "name", "alias", "token")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    source: str
    name: str
    alias: str
    token: str
    def __init__(self, source: _Optional[str] = ..., name: _Optional[str] = ..., alias: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class AdapterImport(_message.Message):
    __slots__ = ("id", "source", "name", "alias", "status", "bytes_done", "bytes_total", "version", "error", "created_at", "updated_at", "object")
    ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    id: str
    source: str
    name: str
    alias: str
    status: str
    bytes_done: int
    bytes_total: int
    version: int
    error: ImportError
    created_at: str
    updated_at: str
    object: str
    def __init__(self, id: _Optional[str] = ..., source: _Optional[str] = ..., name: _Optional[str] = ..., alias: _Optional[str] = ..., status: _Optional[str] = ..., bytes_done: _Optional[int] = ..., bytes_total: _Optional[int] = ..., version: _Optional[int] = ..., error: _Optional[_Union[ImportError, _Mapping]] = ..., created_at: _Optional[str] = ..., updated_at: _Optional[str] = ..., object: _Optional[str] = ...) -> None: ...

class ImportError(_message.Message):
    __slots__ = ("code", "message", "param")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    param: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., param: _Optional[str] = ...) -> None: ...

class ListImportsRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListImportsResponse(_message.Message):
    __slots__ = ("data", "has_more", "first_id", "last_id", "object")
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[AdapterImport]
    has_more: bool
    first_id: str
    last_id: str
    object: str
    def __init__(self, data: _Optional[_Iterable[_Union[AdapterImport, _Mapping]]] = ..., has_more: bool = ..., first_id: _Optional[str] = ..., last_id: _Optional[str] = ..., object: _Optional[str] = ...) -> None: ...

class GetImportRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelImportRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...
