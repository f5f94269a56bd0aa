"""What the process that trains is told to do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loragate.finetune.recipe import Recipe


@dataclass(frozen=True)
class Assignment:
    """All paths are of this machine. `start` has the two files of the adapter to go on from."""

    recipe: Recipe
    base: Path
    train: Path
    valid: Path | None
    folder: Path
    start: Path | None
    row_tokens: int
    checkpoint_steps: int
    threads: int
    device: str = "auto"  # auto, cpu, cuda, cuda:N
    memory_bytes: int | None = None  # that it may take; None: what it needs
    stands_back: bool = False  # behind whatever else wants to compute on this machine
    report_to: tuple[str, ...] = ()  # tensorboard, mlflow, wandb
    name: str = ""  # of the run, there

    def to_document(self) -> dict[str, Any]:
        """As JSON, to be read by `of_document`."""
        paths = {name: str(path) for name, path in vars(self).items() if isinstance(path, Path)}
        return {**vars(self), **paths, "recipe": self.recipe.to_document()}

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> "Assignment":
        """What `to_document` wrote."""
        paths = {
            name: document[name] and Path(document[name]) for name in ("base", "train", "valid", "folder", "start")
        }
        read = {"recipe": Recipe.of_document(document["recipe"]), "report_to": tuple(document["report_to"])}
        return cls(**{**document, **paths, **read})
