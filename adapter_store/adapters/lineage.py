"""The origin of a version."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.names import could_be_version

MAX_FIGURES = 64
MAX_NOTES = 2000  # characters
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FIGURE = re.compile(r"[\w./@%-][\w ./@%-]{0,63}")


@dataclass(frozen=True)
class Lineage:
    """A version's origin: `source` is `upload`, `import` or a fine-tuning job's id; its creator supplies the rest.

    `parent_version` is a version of the same adapter; `evaluation` has figures by name; `notes` are for people.
    Raises Invalid.
    """

    source: str = "upload"
    dataset_digest: str | None = None
    parent_version: int | None = None
    evaluation: Mapping[str, float] = field(default_factory=dict)
    notes: str | None = None

    def __post_init__(self) -> None:
        if self.dataset_digest is not None and not _DIGEST.fullmatch(self.dataset_digest):
            raise Invalid("`dataset_digest` must be `sha256:` and 64 hexadecimal digits.", param="dataset_digest")
        if self.parent_version is not None and not could_be_version(self.parent_version):
            raise Invalid("`parent_version` is not a version.", param="parent_version")
        if self.notes is not None and (len(self.notes) > MAX_NOTES or "\0" in self.notes):
            raise Invalid(f"`notes` must be at most {MAX_NOTES} characters, none of them NUL.", param="notes")
        _check_figures(self.evaluation)


def _check_figures(evaluation: Mapping[str, float]) -> None:
    if len(evaluation) > MAX_FIGURES:
        raise Invalid(f"`evaluation` must have at most {MAX_FIGURES} figures.", param="evaluation")
    for name, value in evaluation.items():
        if not _FIGURE.fullmatch(name):
            raise Invalid(
                "`evaluation` has a name that is not 1 to 64 letters, digits, blanks and `_./@%-`.", param="evaluation"
            )
        if not math.isfinite(value):
            raise Invalid(f"`evaluation` has a figure that is not finite: {name}.", param=f"evaluation.{name}")


UPLOADED = Lineage()
