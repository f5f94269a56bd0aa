"""The hyperparameters that a tenant can choose; `auto` values depend on the data."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from loragate.finetune.data.formats import Method
from loragate.prompts.bodies import Body, field_error

Auto = Literal["auto"]
MAX_INVOCATION_TOKENS = 64
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
InvocationTokens = Annotated[list[TokenId], Field(fail_fast=True, min_length=1, max_length=MAX_INVOCATION_TOKENS)]
TargetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]{1,128}$")]
TargetNames = Annotated[list[TargetName], Field(min_length=1, max_length=64)]
Targets = Annotated[
    Annotated[Literal["all-linear"], Tag("all")] | Annotated[TargetNames, Tag("names")],
    Discriminator(
        lambda given: "names" if isinstance(given, list) else "all"
    ),  # without it, errors in a name have no path
]


class Hyperparameters(Body):
    """Hyperparameters of the method `supervised`. The first three are OpenAI's."""

    n_epochs: Annotated[int, Field(ge=1, le=50)] | Auto = "auto"
    batch_size: Annotated[int, Field(ge=1, le=256)] | Auto = "auto"  # examples per step
    learning_rate_multiplier: Annotated[float, Field(gt=0, le=100)] | Auto = "auto"

    lora_rank: Annotated[int, Field(ge=1, le=256)] | Auto = "auto"
    lora_alpha: Annotated[int, Field(ge=1, le=1024)] | Auto = "auto"
    lora_dropout: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    use_rslora: bool = False
    use_dora: bool = False
    alora_invocation_tokens: InvocationTokens | None = None  # with them, the adapter is activated by these tokens
    target_modules: Targets = "all-linear"
    quantization: Literal["nf4", "none"] = "nf4"

    max_length: Annotated[int, Field(ge=16, le=1 << 20)] | Auto = "auto"  # tokens per sample
    packing: bool | Auto = "auto"
    lr_scheduler: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_ratio: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0, le=100)] = 1.0
    early_stopping_patience: Annotated[int, Field(ge=1, le=100)] | None = None  # evaluations without improvement

    streaming: bool = False  # the training file may be appended to while the job runs
    n_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None  # maximum number of steps; only with `streaming`

    @model_validator(mode="after")
    def _consistent(self) -> "Hyperparameters":
        self._check_activation()
        if self.n_steps is not None and not self.streaming:
            raise field_error("n_steps", "it is only allowed with `streaming`; other jobs train for `n_epochs`")
        if self.streaming and self.packing is True:
            raise field_error("packing", "it needs all examples in advance: not available with `streaming`")
        if self.open_ended and "lr_scheduler" in self.model_fields_set and self.lr_scheduler != "constant":
            message = f"'{self.lr_scheduler}' needs a known number of steps: give `n_steps` as well, or use 'constant'"
            raise field_error("lr_scheduler", message)
        return self

    def _check_activation(self) -> None:
        """Raise a field error for what excludes an activated adapter."""
        if self.alora_invocation_tokens is None:
            return
        if self.use_dora:
            raise field_error(
                "use_dora", "PEFT trains either DoRA or activated LoRA: not with `alora_invocation_tokens`"
            )
        if self.packing is True:
            raise field_error("packing", "each row has one invocation: not available with `alora_invocation_tokens`")

    @property
    def invocation(self) -> tuple[int, ...] | None:
        """The tokens that activate the adapter, if any do."""
        return None if self.alora_invocation_tokens is None else tuple(self.alora_invocation_tokens)

    @property
    def open_ended(self) -> bool:
        """Whether the number of steps is unknown until the file is closed."""
        return self.streaming and self.n_steps is None


class DpoHyperparameters(Hyperparameters):
    """Hyperparameters of the method `dpo`."""

    beta: Annotated[float, Field(gt=0, le=10)] | Auto = "auto"

    @model_validator(mode="after")
    def _pairs_are_not_packed(self) -> "DpoHyperparameters":
        if self.packing is True:
            raise field_error("packing", "preference pairs are never packed: leave it out")
        _reject_activation(self, Method.DPO)
        return self


class ClassifyHyperparameters(Hyperparameters):
    """Hyperparameters of the method `classify`."""

    validation_split: Annotated[float, Field(ge=0, le=0.5)] | Auto = "auto"  # of the training file's examples

    @model_validator(mode="after")
    def _texts_are_apart(self) -> "ClassifyHyperparameters":
        if self.packing is True:
            raise field_error("packing", "texts to classify are never packed: leave it out")
        if self.streaming:
            raise field_error("streaming", "all labels must be known in advance: not available for `classify`")
        _reject_activation(self, Method.CLASSIFY)
        return self


def _reject_activation(asked: Hyperparameters, method: Method) -> None:
    """Raise a field error for an activated adapter, which only the method `supervised` trains."""
    if asked.alora_invocation_tokens is not None:
        raise field_error(
            "alora_invocation_tokens", f"only the method `supervised` trains activated LoRA, not `{method}`"
        )


HYPERPARAMETERS: Mapping[Method, type[Hyperparameters]] = {
    Method.SUPERVISED: Hyperparameters,
    Method.DPO: DpoHyperparameters,
    Method.CLASSIFY: ClassifyHyperparameters,
}
"""The hyperparameters of each method."""
