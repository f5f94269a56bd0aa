"""What a tenant may ask of a training run; whatever is `auto` depends on the data."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from loragate.prompts.body import Body

Auto = Literal["auto"]
TargetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]{1,128}$")]
TargetNames = Annotated[list[TargetName], Field(min_length=1, max_length=64)]


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
    target_modules: Literal["all-linear"] | TargetNames = "all-linear"
    quantization: Literal["nf4", "none"] = "nf4"

    max_length: Annotated[int, Field(ge=16, le=1 << 20)] | Auto = "auto"  # tokens of a sample
    packing: bool | Auto = "auto"
    lr_scheduler: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_ratio: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0, le=100)] = 1.0
    early_stopping_patience: Annotated[int, Field(ge=1, le=100)] | None = None  # evaluations without getting better


class DpoHyperparameters(Hyperparameters):
    """Of the method `dpo`."""

    beta: Annotated[float, Field(gt=0, le=10)] | Auto = "auto"
