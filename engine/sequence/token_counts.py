"""Which tokens a sequence has, and how often it generated each: a long prompt is counted once, not in every step."""

from collections.abc import Sequence

import numpy as np

from loragate.engine.runtime.arrays import Integers


class TokenCounts:
    """`follow` takes up what was generated meanwhile."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._ids = np.unique(np.array(prompt, dtype=np.int64))  # then those that only were generated
        self._generated = np.zeros_like(self._ids)  # how often each was
        self._place = {token: place for place, token in enumerate(self._ids.tolist())}
        self._followed = len(prompt)

    def follow(self, tokens: Sequence[int]) -> None:
        """All that there are by now, the prompt's first; each of them is known."""
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
        """Each token once, in no order."""
        return self._ids[: len(self._place)]

    @property
    def generated(self) -> tuple[Integers, Integers]:
        """Each that was generated, and how often."""
        counts = self._generated[: len(self._place)]
        places = np.flatnonzero(counts)
        return self._ids[places], counts[places]
