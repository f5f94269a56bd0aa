"""What a tenant may ask of a training run; whatever is `auto` depends on the data."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from loragate.prompts.body import Body
from loragate.prompts.validation import field_error

Auto = Literal["auto"]
TargetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]{1,128}$")]
TargetNames = Annotated[list[TargetName], Field(min_length=1, max_length=64)]
Targets = Annotated[
    Annotated[Literal["all-linear"], Tag("all")] | Annotated[TargetNames, Tag("names")],
    Discriminator(lambda given: "names" if isinstance(given, list) else "all"),  # else a name's fault is no one's
]


class Hyperparameters(Body):
    """Of the method `supervised`. The first three are OpenAI's."""

    n_epochs: Annotated[int, Field(ge=1, le=50)] | Auto = "auto"
    batch_size: Annotated[int, Field(ge=1, le=256)] | Auto = "auto"  # examples a step
    learning_rate_multiplier: Annotated[float, Field(gt=0, le=100)] | Auto = "auto"

    lora_rank: Annotated[int, Field(ge=1, le=256)] | Auto = "auto"
    lora_alpha: Annotated[int, Field(ge=1, le=1024)] | Auto = "auto"
    lora_dropout: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    use_rslora: bool = False
    use_dora: bool = False
    target_modules: Targets = "all-linear"
    quantization: Literal["nf4", "none"] = "nf4"

    max_length: Annotated[int, Field(ge=16, le=1 << 20)] | Auto = "auto"  # tokens of a sample
    packing: bool | Auto = "auto"
    lr_scheduler: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_ratio: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0, le=100)] = 1.0
    early_stopping_patience: Annotated[int, Field(ge=1, le=100)] | None = None  # evaluations without getting better

    streaming: bool = False  # the training file may still grow
    n_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None  # at the most; of streaming jobs alone

    @model_validator(mode="after")
    def _go_together(self) -> "Hyperparameters":
        if self.n_steps is not None and not self.streaming:
            raise field_error("n_steps", "only jobs with `streaming` have it; others are as long as their epochs")
        if self.streaming and self.packing is True:
            raise field_error("packing", "it needs to see all examples first, which `streaming` does not wait for")
        if self.endless and "lr_scheduler" in self.model_fields_set and self.lr_scheduler != "constant":
            words = f"'{self.lr_scheduler}' must know where it ends: give `n_steps` as well, or take 'constant'"
            raise field_error("lr_scheduler", words)
        return self

    @property
    def endless(self) -> bool:
        """Nobody knows how many steps there will be."""
        return self.streaming and self.n_steps is None


class DpoHyperparameters(Hyperparameters):
    """Of the method `dpo`."""

    beta: Annotated[float, Field(gt=0, le=10)] | Auto = "auto"

    @model_validator(mode="after")
    def _pairs_are_not_packed(self) -> "DpoHyperparameters":
        if self.packing is True:
            raise field_error("packing", "preferences are trained on in pairs, which share no rows: leave it out")
        return self
