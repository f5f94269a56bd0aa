"""The distinct tokens of a sequence and their counts, updated incrementally so that a long prompt is counted once."""

from collections.abc import Sequence

import numpy as np

from loragate.engine.runtime.arrays import Integers


class TokenCounts:
    """Token counts of one sequence, brought up to date by `update`."""

    def __init__(self, prompt: Sequence[int]) -> None:
        # of the prompt, followed by those that were only generated
        self._ids = np.unique(np.array(prompt, dtype=np.int64))
        self._generated = np.zeros_like(self._ids)  # the count of each
        self._place = {token: place for place, token in enumerate(self._ids.tolist())}
        self._followed = len(prompt)

    def update(self, tokens: Sequence[int]) -> None:
        """Count the new ones among all tokens so far, the prompt's first; all of them must be known."""
        for token in tokens[self._followed :]:
            place = self._place.setdefault(token, len(self._place))
            if place == len(self._ids):
                self._ids = np.append(self._ids, np.zeros(max(64, place), dtype=np.int64))
                self._generated = np.append(self._generated, np.zeros(len(self._ids) - place, dtype=np.int64))
            self._ids[place] = token
            self._generated[place] += 1
        self._followed = len(tokens)

    @property
    def all(self) -> Integers:
        """Each token once, in no particular order."""
        return self._ids[: len(self._place)]

    @property
    def generated(self) -> tuple[Integers, Integers]:
        """The generated tokens and their counts."""
        counts = self._generated[: len(self._place)]
        places = np.flatnonzero(counts)
        return self._ids[places], counts[places]
