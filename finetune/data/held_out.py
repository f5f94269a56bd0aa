"""The split of a file of labelled samples into those that are trained on and those that are held out."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loragate.finetune.data.labels import LabelSet
from loragate.finetune.data.token_file import TokenFile
from loragate.peft_format.classification import ProblemType

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """The places of samples in their file, in order: `train` and `held_out` together are all of them."""

    train: Places
    held_out: Places


def split_samples(tokens: TokenFile, labels: LabelSet, share: float, seed: int) -> Split:
    """Hold out a share of the samples, chosen by the seed: of each class the same share, so a class of very few samples
    is only trained on. Slow for millions of samples (seconds)."""
    everything = np.arange(len(tokens))
    if not share:
        return Split(everything, everything[:0])
    draw = np.random.default_rng(seed)
    groups = _by_class(tokens) if labels.problem_type is ProblemType.SINGLE_LABEL else [everything]
    chosen = [draw.permutation(group)[: round(share * len(group))] for group in groups]
    held_out = np.sort(np.concatenate([everything[:0], *chosen]))
    return Split(np.setdiff1d(everything, held_out), held_out)


def _by_class(tokens: TokenFile) -> Sequence[Places]:
    places: dict[tuple[float, ...], list[int]] = defaultdict(list)
    for place in range(len(tokens)):
        places[tokens.label(place) or ()].append(place)
    return [np.array(group, np.int64) for _, group in sorted(places.items())]
