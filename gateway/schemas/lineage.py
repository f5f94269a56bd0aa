"""What an upload says about where its version came from."""

from typing import Annotated

from pydantic import Field

from loragate.adapter_store.adapters.lineage import MAX_FIGURES, Lineage
from loragate.prompts.body import Body


class LineageFields(Body):
    """Beside the files; in a form each is a text of its own, `evaluation` as JSON."""

    notes: str | None = None
    dataset_digest: str | None = None
    parent_version: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    evaluation: Annotated[dict[str, float], Field(max_length=MAX_FIGURES)] | None = None

    def lineage(self, source: str = "upload") -> Lineage:
        """Raises Invalid."""
        return Lineage(source, self.dataset_digest, self.parent_version, self.evaluation or {}, self.notes)
