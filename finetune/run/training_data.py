"""The data of one run, whether all of it is known or it still grows."""

from dataclasses import dataclass
from pathlib import Path

from loragate.finetune.run.preparation import Prepared
from loragate.finetune.run.streaming_file import StreamingTrainingFile


@dataclass(frozen=True)
class TrainingData:
    """`streaming` is the training file of a job with `streaming`; `total_steps` is None where it is unknown."""

    prepared: Prepared
    streaming: StreamingTrainingFile | None
    total_steps: int | None

    @property
    def folder(self) -> Path:
        """The tokens to train on."""
        if self.streaming is not None:
            return self.streaming.folder
        assert self.prepared.train is not None
        return self.prepared.train.folder

    @property
    def digest(self) -> str:
        """The digest of the training file, as far as it was read."""
        if self.streaming is not None:
            return self.streaming.digest
        assert self.prepared.dataset_digest is not None
        return self.prepared.dataset_digest

    def trained_tokens(self, steps: int) -> int:
        """Return the tokens that `steps` steps have processed; of a run that stopped early, its share of all tokens."""
        if self.streaming is not None:
            return self.streaming.trained_tokens(steps, self.prepared.recipe)
        tokens = self.prepared.tokens
        assert tokens is not None
        assert self.total_steps is not None
        return tokens * steps // max(1, self.total_steps)  # no steps if nothing is left to learn
