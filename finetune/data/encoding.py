"""Masked texts as tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loragate.finetune.data.loss_mask import LabelNumbers, MaskedText
from loragate.prompts.tokenizer import TextTokenizer

Ids = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sample:
    """One training sample: its token ids and its loss mask, both `[tokens]`. The loss counts only `learned` tokens, or,
    if there is one, the `label`."""

    ids: Ids
    learned: Mask
    label: LabelNumbers | None = None

    @property
    def has_targets(self) -> bool:
        """Whether any token with a predecessor is learned, or any token has a label."""
        if self.label is not None:
            return len(self.ids) > 0
        return bool(self.learned[1:].any())

    def cut(self, length: int) -> "Sample":
        """Return the first `length` tokens."""
        return self if len(self.ids) <= length else Sample(self.ids[:length], self.learned[:length], self.label)


class Encoder:
    """Turns masked texts into samples.

    `end_ids` are the tokens that end an answer. An answer that ends with none of them gets the first one appended.
    """

    def __init__(self, tokenizer: TextTokenizer, end_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._end_ids = np.array(end_ids, np.uint32)

    def encode(self, texts: Sequence[MaskedText]) -> list[Sample]:
        """Encode all texts at once; the tokenizer works on several in parallel."""
        samples: list[Sample | None] = [None] * len(texts)
        for plain in (True, False):
            places = [place for place, each in enumerate(texts) if each.plain is plain]
            encoded = self._tokenizer.encode_batch([texts[place].text for place in places], plain=plain)
            for place, (ids, spans) in zip(places, encoded, strict=True):
                samples[place] = self._sample(texts[place], np.array(ids, np.uint32), spans)
        return [sample for sample in samples if sample is not None]

    def _sample(self, text: MaskedText, ids: Ids, spans: Sequence[tuple[int, int]]) -> Sample:
        if text.label is not None:
            return Sample(ids, np.zeros(len(ids), np.bool_), text.label)
        bounds = np.array(spans, np.int64).reshape(-1, 2)
        learned = np.zeros(len(ids), np.bool_)
        for start, stop in text.learned:
            inside = (bounds[:, 0] >= start) & (bounds[:, 0] < stop) & (bounds[:, 1] > bounds[:, 0])
            self._learn(ids, learned, np.flatnonzero(inside), whole=not text.continues or stop < len(text.text))
        return Sample(ids, learned) if text.continues else self._ended(ids, learned)

    def _learn(self, ids: Ids, learned: Mask, places: npt.NDArray[np.intp], *, whole: bool) -> None:
        """Mark the tokens at `places` as learned, up to the answer's end token: the model never generates what a
        template writes after it."""
        ends = np.flatnonzero(np.isin(ids[places], self._end_ids))
        learned[places[: ends[-1] + 1] if whole and len(ends) else places] = True

    def _ended(self, ids: Ids, learned: Mask) -> Sample:
        places = np.flatnonzero(learned)
        if not len(places) or not len(self._end_ids) or ids[places[-1]] in self._end_ids:
            return Sample(ids, learned)
        stop = places[-1] + 1
        return Sample(np.append(ids[:stop], self._end_ids[0]), np.append(learned[:stop], True))
