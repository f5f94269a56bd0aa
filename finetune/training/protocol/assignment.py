"""The assignment of a training process."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.protocol.trainer_settings import TrainerSettings


@dataclass(frozen=True)
class Assignment:
    """All paths are on this machine. `start` holds the two files of the adapter to continue from."""

    recipe: Recipe
    base: Path
    train: Path
    valid: Path | None
    folder: Path
    start: Path | None
    row_tokens: int
    checkpoint_steps: int
    name: str = ""  # the run's name in tracking systems
    settings: TrainerSettings = field(default_factory=TrainerSettings)

    def to_document(self) -> dict[str, Any]:
        """Return the assignment as JSON for `from_document`."""
        paths = {name: str(path) for name, path in vars(self).items() if isinstance(path, Path)}
        parts = {name: getattr(self, name).to_document() for name in ("recipe", "settings")}
        return {**vars(self), **paths, **parts}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Assignment":
        """Return the assignment that `to_document` wrote."""
        paths = {
            name: document[name] and Path(document[name]) for name in ("base", "train", "valid", "folder", "start")
        }
        recipe, settings = Recipe.from_document(document["recipe"]), TrainerSettings.from_document(document["settings"])
        return cls(**{**document, **paths, "recipe": recipe, "settings": settings})
