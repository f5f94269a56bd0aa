"""The bodies of commands to training runs."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from loragate.adapter_store.training.objects import is_checkpoint_name
from loragate.gateway.schemas.training.sessions import Metadata, Number, SessionId, Text
from loragate.prompts.bodies import Body, field_error

RunId = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Seq = Annotated[int, Field(ge=1, lt=1 << 31)]
Path = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
CheckpointMetadata = Annotated[dict[str, Annotated[str, StringConstraints(max_length=512)]], Field(max_length=64)]

_HOUR, _TEN_YEARS = 3600, 10 * 366 * 86_400
Lifetime = Annotated[int, Field(ge=_HOUR, le=_TEN_YEARS)]


class LoraConfig(Body):
    """The adapter of a run."""

    rank: Annotated[int, Field(ge=1, le=1024)]
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True

    @model_validator(mode="after")
    def _trains_something(self) -> "LoraConfig":
        if not (self.train_unembed or self.train_mlp or self.train_attn):
            raise field_error("train_attn", "one of train_attn, train_mlp and train_unembed must be true")
        return self


class OptimizerConfig(Body):
    """The optimizer of a run: AdamW is the only one."""

    type: Text = "adamw"
    version: int | None = None

    @field_validator("type")
    @classmethod
    def _is_adamw(cls, given: str) -> str:
        if given != "adamw":
            raise field_error("type", f"{given!r} is not supported: 'adamw' is")
        return given


class ModelCreate(Body):
    """Body of POST /api/v1/create_model."""

    session_id: SessionId
    model_seq_id: Number
    base_model: Text
    user_metadata: Metadata | None = None
    lora_config: LoraConfig | None = None
    optimizer_config: OptimizerConfig | None = None
    type: Literal["create_model"] = "create_model"


class ModelRef(Body):
    """Body of POST /api/v1/get_info."""

    model_id: RunId
    type: Text | None = None


class AdamParams(Body):
    """The parameters of AdamW, with PyTorch's meaning. A `grad_clip_norm` of 0 clips nothing."""

    learning_rate: Annotated[float, Field(ge=0, le=1e3)] = 1e-4
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    eps: Annotated[float, Field(gt=0, le=1)] = 1e-12
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    grad_clip_norm: Annotated[float, Field(ge=0)] = 0.0


class RunCommand(Body):
    """The fields of every command. Commands of a model are run in the order of `seq_id`, which begins at 1."""

    model_id: RunId
    seq_id: Seq


class OptimStep(RunCommand):
    """Body of POST /api/v1/optim_step."""

    adam_params: AdamParams
    type: Literal["optim_step"] = "optim_step"

    @model_validator(mode="before")
    @classmethod
    def _one_optimizer(cls, document: Any) -> Any:
        if isinstance(document, dict):
            document = dict(document)
            if document.get("optimizer_params") is not None:
                raise field_error("optimizer_params", "only AdamW is supported: send `adam_params`")
            document.pop("optimizer_params", None)
            if "optim_params" in document:
                document.setdefault("adam_params", document.pop("optim_params"))
        return document


class Saved(RunCommand):
    """The fields of commands that make a checkpoint."""

    path: Name | None = None
    ttl_seconds: Lifetime | None = None
    user_metadata: CheckpointMetadata | None = None

    @field_validator("path")
    @classmethod
    def _is_name(cls, name: str | None) -> str | None:
        if name is not None and not is_checkpoint_name(name):
            raise field_error("path", "it is a name: 1 to 128 letters, digits and `._-`, without `/`")
        return name


class WeightsSave(Saved):
    """Body of POST /api/v1/save_weights."""

    overwrite: bool = False
    type: Literal["save_weights"] = "save_weights"


class SamplerSave(Saved):
    """Body of POST /api/v1/save_weights_for_sampler: a checkpoint with a name, or a sampler without one."""

    sampling_session_seq_id: Number | None = None
    kind: Literal["snapshot", "inflight"] = "snapshot"
    overwrite: bool = False
    type: Literal["save_weights_for_sampler"] = "save_weights_for_sampler"

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "SamplerSave":
        if (self.path is None) == (self.sampling_session_seq_id is None):
            raise field_error("path", "give either `path` or `sampling_session_seq_id`")
        if self.path is not None and len(self.path) > 64:
            raise field_error("path", "the name of a sampler becomes an alias: at most 64 characters")
        return self


class ExternalSave(Saved):
    """Body of POST /api/v1/save_weights_external."""

    path: Name
    overwrite: bool = False
    age_encryption_recipients: list[Text] | None = None
    type: Literal["save_weights_external"] = "save_weights_external"

    @model_validator(mode="after")
    def _is_plain(self) -> "ExternalSave":
        if self.age_encryption_recipients:
            words = "encryption is not supported: download the files over TLS, and encrypt them yourself"
            raise field_error("age_encryption_recipients", words)
        return self


class WeightsLoad(Body):
    """Body of POST /api/v1/load_weights: into a model, or as the creation of one. `path` is a checkpoint, or a
    version of an adapter (`tinker://support/weights/3`)."""

    model_id: RunId | None = None
    seq_id: Seq | None = None
    session_id: SessionId | None = None
    model_seq_id: Number | None = None
    base_model: Text | None = None
    user_metadata: Metadata | None = None
    path: Path
    optimizer: bool
    optimizer_config: OptimizerConfig | None = None
    weights_access_token: Annotated[str, StringConstraints(max_length=4096)] | None = None
    type: Literal["load_weights"] = "load_weights"

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "WeightsLoad":
        if self.weights_access_token is not None:
            raise field_error("weights_access_token", "checkpoints of other accounts cannot be loaded")
        into = self.model_id is not None and self.seq_id is not None
        creates = self.session_id is not None and self.model_seq_id is not None
        if into == creates:
            raise field_error("model_id", "give `model_id` and `seq_id`, or `session_id` and `model_seq_id`")
        return self


class WeightsInfo(Body):
    """Body of POST /api/v1/weights_info."""

    tinker_path: Path
    weights_access_token: Annotated[str, StringConstraints(max_length=4096)] | None = None
    type: Text | None = None


class CheckpointLifetime(Body):
    """Body of PUT …/ttl; null: for ever."""

    ttl_seconds: Lifetime | None = None
