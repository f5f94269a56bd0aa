"""What the base model offers an adapter: its modules, by the names transformers gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_HEAD_NAMES = ("lm_head", "embed_out")


class ModuleKind(StrEnum):
    LINEAR = "linear"
    CONV1D = "conv1d"
    EMBEDDING = "embedding"


@dataclass(frozen=True)
class TargetModule:
    """One module of the base model. For an embedding, `in_features` is the vocabulary."""

    name: str
    kind: ModuleKind
    in_features: int
    out_features: int
    servable: bool = True

    def __post_init__(self) -> None:
        assert self.name, "a module has a name"
        assert self.in_features > 0, f"{self.name}: in_features must be positive"
        assert self.out_features > 0, f"{self.name}: out_features must be positive"


@dataclass(frozen=True)
class BaseLayout:
    """Every Linear, Conv1D and Embedding of the base model, keyed by dotted path, in the model's order."""

    model_type: str
    num_layers: int
    modules: Mapping[str, TargetModule]
    tied_embeddings: bool = False
    max_rank: int = 256

    def __post_init__(self) -> None:
        assert self.max_rank > 0, "max_rank must be positive"
        assert all(name == module.name for name, module in self.modules.items()), "modules are keyed by name"

    @property
    def output_head(self) -> TargetModule | None:
        """The module that PEFT leaves out of "all-linear": what `get_output_embeddings()` returns."""
        for module in self.modules.values():
            if module.kind is ModuleKind.LINEAR and module.name.rsplit(".", 1)[-1] in _HEAD_NAMES:
                return module
        return None
