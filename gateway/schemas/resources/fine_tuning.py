"""The body of POST /v1/fine_tuning/jobs."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from loragate.finetune.data.formats import Method
from loragate.finetune.jobs.hyperparameters import ClassifyHyperparameters, DpoHyperparameters, Hyperparameters
from loragate.finetune.jobs.model_name import SUFFIX
from loragate.prompts.bodies import Body, field_error

_MAX_LABELS = 16
_FileId = Annotated[str, StringConstraints(max_length=64)]
_LabelName = Annotated[str, StringConstraints(max_length=64, pattern=r"^[^\x00]*$")]
_LabelText = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00]*$")]
Labels = Annotated[dict[_LabelName, _LabelText], Field(max_length=_MAX_LABELS)]


class SupervisedMethod(Body):
    """Trains on the responses that the examples contain."""

    hyperparameters: Hyperparameters = Field(default_factory=Hyperparameters)


class DpoMethod(Body):
    """Trains on pairs of a preferred and a rejected response."""

    hyperparameters: DpoHyperparameters = Field(default_factory=DpoHyperparameters)


class ClassifyMethod(Body):
    """Trains a head for labels on texts or chats with their labels."""

    hyperparameters: ClassifyHyperparameters = Field(default_factory=ClassifyHyperparameters)


class FineTuningMethod(Body):
    """The training method. The field that `type` names contains its hyperparameters."""

    type: Literal["supervised", "dpo", "classify"]
    supervised: SupervisedMethod | None = None
    dpo: DpoMethod | None = None
    classify: ClassifyMethod | None = None

    @model_validator(mode="after")
    def _is_one_method(self) -> "FineTuningMethod":
        for name in Method:
            if name != self.type and getattr(self, name) is not None:
                raise field_error(name, f"`type` is {self.type}; give the hyperparameters there")
        return self


class JobCreate(Body):
    """Body of POST /v1/fine_tuning/jobs, as in OpenAI's API, with more hyperparameters. Top-level `hyperparameters` are
    the older form of those within `method`."""

    model: Annotated[str, StringConstraints(max_length=1024)]
    training_file: _FileId
    validation_file: _FileId | None = None
    method: FineTuningMethod | None = None
    hyperparameters: Hyperparameters | None = Field(None, deprecated=True)
    suffix: Annotated[str, StringConstraints(pattern=f"^{SUFFIX}$")] | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    metadata: Labels | None = None
    integrations: list[Any] | None = None

    @field_validator("integrations")
    @classmethod
    def _are_none(cls, integrations: list[Any] | None) -> list[Any] | None:
        if integrations:
            words = "the operator configures where runs are reported: leave the field out"
            raise PydanticCustomError("integrations", "{message}", {"message": words})
        return integrations

    @model_validator(mode="after")
    def _has_one_set(self) -> "JobCreate":
        if self.hyperparameters is not None and self.method is not None:
            raise field_error("hyperparameters", "give them only in `method`")
        return self

    @model_validator(mode="after")
    def _can_stop_early(self) -> "JobCreate":
        if self.asked.early_stopping_patience is not None and self.validation_file is None:
            words = "it requires a `validation_file`, whose loss decides when to stop"
            raise field_error(f"{self.path}.early_stopping_patience", words)
        return self

    @model_validator(mode="after")
    def _is_validated_once(self) -> "JobCreate":
        asked = self.asked
        holds_out = isinstance(asked, ClassifyHyperparameters) and asked.validation_split not in ("auto", 0)
        if holds_out and self.validation_file is not None:
            words = "with a `validation_file`, no examples are held out: leave it out"
            raise field_error(f"{self.path}.validation_split", words)
        return self

    @property
    def kind(self) -> str:
        """The method's type."""
        return "supervised" if self.method is None else self.method.type

    @property
    def asked(self) -> Hyperparameters:
        """The hyperparameters of the request; those that are not set are open."""
        if self.method is None:
            return self.hyperparameters or Hyperparameters()
        if self.method.type == "dpo":
            return (self.method.dpo or DpoMethod()).hyperparameters
        if self.method.type == "classify":
            return (self.method.classify or ClassifyMethod()).hyperparameters
        return (self.method.supervised or SupervisedMethod()).hyperparameters

    @property
    def path(self) -> str:
        """The path of `asked` in the body."""
        return "hyperparameters" if self.method is None else f"method.{self.method.type}.hyperparameters"
