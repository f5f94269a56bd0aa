"""Batches keep to their budget and mask what is not learned; Muon's updates are orthogonal; the
rate rises and falls.
"""

from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from loragate.demo.chat_format import PAD
from loragate.demo.corpus import base_samples
from loragate.demo.muon import Muon
from loragate.demo.tokenizer import encode, train_tokenizer
from loragate.demo.training import Schedule, batches, exact_share

TOKENIZER = train_tokenizer((piece.text for sample in islice(base_samples(1), 200) for piece in sample), 500)


def test_batches_keep_to_their_token_budget() -> None:
    for batch in islice(batches(base_samples(3), TOKENIZER, 700, seed=3), 60):
        assert batch.ids.numel() <= 700 or len(batch.ids) == 1
        assert batch.ids.shape == batch.labels.shape


def test_a_batch_learns_the_replies_and_nothing_else() -> None:
    samples = list(islice(base_samples(3), 512))
    expected = sorted(
        tuple(id_ for id_, learned in zip(*encode(TOKENIZER, sample), strict=True) if learned) for sample in samples
    )
    found = []
    for batch in batches(iter(samples), TOKENIZER, 700, seed=3):
        found += [tuple(row[row != -100].tolist()) for row in batch.labels]
        assert (batch.labels[batch.labels != -100] != TOKENIZER.token_to_id(PAD)).all()
        if len(found) == len(samples):
            break
    assert sorted(found) == expected


class Knows(nn.Module):
    """Writes the right next token of every sample in `batch`, except for those in `wrong` rows."""

    def __init__(self, wrong: int) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        following = torch.roll(input_ids, -1, dims=1)
        following[: self.wrong] += 1
        self.wrong = max(0, self.wrong - len(input_ids))
        return SimpleNamespace(logits=nn.functional.one_hot(following, 600).float())


@pytest.mark.parametrize("wrong", [0, 1, 25, 100])
def test_a_sample_is_exact_if_every_learned_token_is_the_most_likely(wrong: int) -> None:
    samples = list(islice(base_samples(3), 100))
    assert exact_share(Knows(wrong), samples, TOKENIZER) == 1 - wrong / 100


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48)])
def test_muon_moves_matrices_orthogonally(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = nn.Parameter(torch.zeros(shape))
    # A gradient that nearly has rank one: plain descent would move along that one direction only.
    matrix.grad = torch.outer(torch.randn(shape[0]), torch.randn(shape[1])) + 0.05 * torch.randn(shape)
    Muon([matrix], weight_decay=0.0).step(1.0)
    scale = 0.2 * max(shape) ** 0.5
    singular = torch.linalg.svdvals(matrix.detach()) / scale
    assert singular.max() < 1.3
    assert singular.median() > 0.6
    assert (matrix.detach() * matrix.grad).sum() < 0, "downhill"


def test_the_rate_warms_up_and_falls() -> None:
    schedule = Schedule(steps=100, learning_rate=1.0, warmup=10)
    rates = [schedule.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[10] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.05, abs=0.01)
