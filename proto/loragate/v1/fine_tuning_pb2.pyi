from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateFineTuningJobRequest(_message.Message):
    __slots__ = ("model", "training_file", "validation_file", "method", "suffix", "seed", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FILE_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FILE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    model: str
    training_file: str
    validation_file: str
    method: FineTuningMethod
    suffix: str
    seed: int
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, model: _Optional[str] = ..., training_file: _Optional[str] = ..., validation_file: _Optional[str] = ..., method: _Optional[_Union[FineTuningMethod, _Mapping]] = ..., suffix: _Optional[str] = ..., seed: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class FineTuningMethod(_message.Message):
    __slots__ = ("type", "supervised", "dpo", "classify")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SUPERVISED_FIELD_NUMBER: _ClassVar[int]
    DPO_FIELD_NUMBER: _ClassVar[int]
    CLASSIFY_FIELD_NUMBER: _ClassVar[int]
    type: str
    supervised: FineTuningMethodFields
    dpo: FineTuningMethodFields
    classify: FineTuningMethodFields
    def __init__(self, type: _Optional[str] = ..., supervised: _Optional[_Union[FineTuningMethodFields, _Mapping]] = ..., dpo: _Optional[_Union[FineTuningMethodFields, _Mapping]] = ..., classify: _Optional[_Union[FineTuningMethodFields, _Mapping]] = ...) -> None: ...

class FineTuningMethodFields(_message.Message):
    __slots__ = ("hyperparameters",)
    HYPERPARAMETERS_FIELD_NUMBER: _ClassVar[int]
    hyperparameters: FineTuningHyperparameters
    def __init__(self, hyperparameters: _Optional[_Union[FineTuningHyperparameters, _Mapping]] = ...) -> None: ...

class FineTuningHyperparameters(_message.Message):
    __slots__ = ("n_epochs", "batch_size", "learning_rate_multiplier", "lora_rank", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "target_modules", "quantization", "max_length", "packing", "lr_scheduler", "warmup_ratio", "weight_decay", "max_grad_norm", "early_stopping_patience", "beta", "streaming", "n_steps", "validation_split", "alora_invocation_tokens")
    N_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    LORA_RANK_FIELD_NUMBER: _ClassVar[int]
    LORA_ALPHA_FIELD_NUMBER: _ClassVar[int]
    LORA_DROPOUT_FIELD_NUMBER: _ClassVar[int]
    USE_RSLORA_FIELD_NUMBER: _ClassVar[int]
    USE_DORA_FIELD_NUMBER: _ClassVar[int]
    TARGET_MODULES_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    LR_SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    WARMUP_RATIO_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOPPING_PATIENCE_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    STREAMING_FIELD_NUMBER: _ClassVar[int]
    N_STEPS_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_SPLIT_FIELD_NUMBER: _ClassVar[int]
    ALORA_INVOCATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    n_epochs: int
    batch_size: int
    learning_rate_multiplier: float
    lora_rank: int
    lora_alpha: int
    lora_dropout: float
    use_rslora: bool
    use_dora: bool
    target_modules: _containers.RepeatedScalarFieldContainer[str]
    quantization: str
    max_length: int
    packing: bool
    lr_scheduler: str
    warmup_ratio: float
    weight_decay: float
    max_grad_norm: float
    early_stopping_patience: int
    beta: float
    streaming: bool
    n_steps: int
    validation_split: float
    alora_invocation_tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, n_epochs: _Optional[int] = ..., batch_size: _Optional[int] = ..., learning_rate_multiplier: _Optional[float] = ..., lora_rank: _Optional[int] = ..., lora_alpha: _Optional[int] = ..., lora_dropout: _Optional[float] = ..., use_rslora: bool = ..., use_dora: bool = ..., target_modules: _Optional[_Iterable[str]] = ..., quantization: _Optional[str] = ..., max_length: _Optional[int] = ..., packing: bool = ..., lr_scheduler: _Optional[str] = ..., warmup_ratio: _Optional[float] = ..., weight_decay: _Optional[float] = ..., max_grad_norm: _Optional[float] = ..., early_stopping_patience: _Optional[int] = ..., beta: _Optional[float] = ..., streaming: bool = ..., n_steps: _Optional[int] = ..., validation_split: _Optional[float] = ..., alora_invocation_tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class FineTuningJob(_message.Message):
    __slots__ = ("id", "object", "created_at", "error", "estimated_finish", "fine_tuned_model", "finished_at", "hyperparameters", "metadata", "method", "model", "organization_id", "progress", "result_files", "seed", "start_version", "status", "trained_tokens", "training_file", "validation_file", "evaluation")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FINISH_FIELD_NUMBER: _ClassVar[int]
    FINE_TUNED_MODEL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    HYPERPARAMETERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FILES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    START_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TRAINED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FILE_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FILE_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    created_at: int
    error: FineTuningError
    estimated_finish: int
    fine_tuned_model: str
    finished_at: int
    hyperparameters: FineTuningHyperparameters
    metadata: _containers.ScalarMap[str, str]
    method: FineTuningMethod
    model: str
    organization_id: str
    progress: FineTuningProgress
    result_files: _containers.RepeatedScalarFieldContainer[str]
    seed: int
    start_version: FineTuningStart
    status: str
    trained_tokens: int
    training_file: str
    validation_file: str
    evaluation: FineTuningEvaluation
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., created_at: _Optional[int] = ..., error: _Optional[_Union[FineTuningError, _Mapping]] = ..., estimated_finish: _Optional[int] = ..., fine_tuned_model: _Optional[str] = ..., finished_at: _Optional[int] = ..., hyperparameters: _Optional[_Union[FineTuningHyperparameters, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., method: _Optional[_Union[FineTuningMethod, _Mapping]] = ..., model: _Optional[str] = ..., organization_id: _Optional[str] = ..., progress: _Optional[_Union[FineTuningProgress, _Mapping]] = ..., result_files: _Optional[_Iterable[str]] = ..., seed: _Optional[int] = ..., start_version: _Optional[_Union[FineTuningStart, _Mapping]] = ..., status: _Optional[str] = ..., trained_tokens: _Optional[int] = ..., training_file: _Optional[str] = ..., validation_file: _Optional[str] = ..., evaluation: _Optional[_Union[FineTuningEvaluation, _Mapping]] = ...) -> None: ...

class FineTuningEvaluation(_message.Message):
    __slots__ = ("problem_type", "examples", "accuracy", "macro_f1", "mse", "pearson", "labels", "confusion_matrix")
    PROBLEM_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    MACRO_F1_FIELD_NUMBER: _ClassVar[int]
    MSE_FIELD_NUMBER: _ClassVar[int]
    PEARSON_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CONFUSION_MATRIX_FIELD_NUMBER: _ClassVar[int]
    problem_type: str
    examples: int
    accuracy: float
    macro_f1: float
    mse: float
    pearson: float
    labels: _containers.RepeatedCompositeFieldContainer[FineTuningLabelEvaluation]
    confusion_matrix: _containers.RepeatedCompositeFieldContainer[FineTuningConfusionRow]
    def __init__(self, problem_type: _Optional[str] = ..., examples: _Optional[int] = ..., accuracy: _Optional[float] = ..., macro_f1: _Optional[float] = ..., mse: _Optional[float] = ..., pearson: _Optional[float] = ..., labels: _Optional[_Iterable[_Union[FineTuningLabelEvaluation, _Mapping]]] = ..., confusion_matrix: _Optional[_Iterable[_Union[FineTuningConfusionRow, _Mapping]]] = ...) -> None: ...

class FineTuningLabelEvaluation(_message.Message):
    __slots__ = ("label", "examples", "precision", "recall", "f1")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    F1_FIELD_NUMBER: _ClassVar[int]
    label: str
    examples: int
    precision: float
    recall: float
    f1: float
    def __init__(self, label: _Optional[str] = ..., examples: _Optional[int] = ..., precision: _Optional[float] = ..., recall: _Optional[float] = ..., f1: _Optional[float] = ...) -> None: ...

class FineTuningConfusionRow(_message.Message):
    __slots__ = ("examples",)
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    examples: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, examples: _Optional[_Iterable[int]] = ...) -> None: ...

class FineTuningError(_message.Message):
    __slots__ = ("code", "message", "param")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    param: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., param: _Optional[str] = ...) -> None: ...

class FineTuningProgress(_message.Message):
    __slots__ = ("step", "total_steps")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    step: int
    total_steps: int
    def __init__(self, step: _Optional[int] = ..., total_steps: _Optional[int] = ...) -> None: ...

class FineTuningStart(_message.Message):
    __slots__ = ("name", "version", "digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    digest: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class ListFineTuningJobsRequest(_message.Message):
    __slots__ = ("after", "limit", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListFineTuningJobsResponse(_message.Message):
    __slots__ = ("data", "has_more", "first_id", "last_id", "object")
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[FineTuningJob]
    has_more: bool
    first_id: str
    last_id: str
    object: str
    def __init__(self, data: _Optional[_Iterable[_Union[FineTuningJob, _Mapping]]] = ..., has_more: bool = ..., first_id: _Optional[str] = ..., last_id: _Optional[str] = ..., object: _Optional[str] = ...) -> None: ...

class GetFineTuningJobRequest(_message.Message):
    __slots__ = ("fine_tuning_job_id",)
    FINE_TUNING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    fine_tuning_job_id: str
    def __init__(self, fine_tuning_job_id: _Optional[str] = ...) -> None: ...

class CancelFineTuningJobRequest(_message.Message):
    __slots__ = ("fine_tuning_job_id",)
    FINE_TUNING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    fine_tuning_job_id: str
    def __init__(self, fine_tuning_job_id: _Optional[str] = ...) -> None: ...

class PauseFineTuningJobRequest(_message.Message):
    __slots__ = ("fine_tuning_job_id",)
    FINE_TUNING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    fine_tuning_job_id: str
    def __init__(self, fine_tuning_job_id: _Optional[str] = ...) -> None: ...

class ResumeFineTuningJobRequest(_message.Message):
    __slots__ = ("fine_tuning_job_id",)
    FINE_TUNING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    fine_tuning_job_id: str
    def __init__(self, fine_tuning_job_id: _Optional[str] = ...) -> None: ...

class ListFineTuningEventsRequest(_message.Message):
    __slots__ = ("fine_tuning_job_id", "after", "follow")
    FINE_TUNING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    fine_tuning_job_id: str
    after: str
    follow: bool
    def __init__(self, fine_tuning_job_id: _Optional[str] = ..., after: _Optional[str] = ..., follow: bool = ...) -> None: ...

class FineTuningEvent(_message.Message):
    __slots__ = ("id", "object", "created_at", "level", "message", "type", "data")
    class DataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    created_at: int
    level: str
    message: str
    type: str
    data: _containers.ScalarMap[str, float]
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., created_at: _Optional[int] = ..., level: _Optional[str] = ..., message: _Optional[str] = ..., type: _Optional[str] = ..., data: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ListFineTuningCheckpointsRequest(_message.Message):
    __slots__ = ("fine_tuning_job_id", "after", "limit")
    FINE_TUNING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    fine_tuning_job_id: str
    after: str
    limit: int
    def __init__(self, fine_tuning_job_id: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class FineTuningCheckpoint(_message.Message):
    __slots__ = ("id", "object", "created_at", "fine_tuned_model_checkpoint", "fine_tuning_job_id", "metrics", "step_number")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    FINE_TUNED_MODEL_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FINE_TUNING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    STEP_NUMBER_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    created_at: int
    fine_tuned_model_checkpoint: str
    fine_tuning_job_id: str
    metrics: _containers.ScalarMap[str, float]
    step_number: int
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., created_at: _Optional[int] = ..., fine_tuned_model_checkpoint: _Optional[str] = ..., fine_tuning_job_id: _Optional[str] = ..., metrics: _Optional[_Mapping[str, float]] = ..., step_number: _Optional[int] = ...) -> None: ...

class ListFineTuningCheckpointsResponse(_message.Message):
    __slots__ = ("data", "has_more", "first_id", "last_id", "object")
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[FineTuningCheckpoint]
    has_more: bool
    first_id: str
    last_id: str
    object: str
    def __init__(self, data: _Optional[_Iterable[_Union[FineTuningCheckpoint, _Mapping]]] = ..., has_more: bool = ..., first_id: _Optional[str] = ..., last_id: _Optional[str] = ..., object: _Optional[str] = ...) -> None: ...

class AppendToFileRequest(_message.Message):
    __slots__ = ("file_id", "data")
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    file_id: str
    data: bytes
    def __init__(self, file_id: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class CloseFileRequest(_message.Message):
    __slots__ = ("file_id",)
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    file_id: str
    def __init__(self, file_id: _Optional[str] = ...) -> None: ...

class FineTuningFile(_message.Message):
    __slots__ = ("id", "object", "bytes", "created_at", "expires_at", "filename", "purpose", "status", "open_until")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OPEN_UNTIL_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: str
    open_until: int
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., bytes: _Optional[int] = ..., created_at: _Optional[int] = ..., expires_at: _Optional[int] = ..., filename: _Optional[str] = ..., purpose: _Optional[str] = ..., status: _Optional[str] = ..., open_until: _Optional[int] = ...) -> None: ...
