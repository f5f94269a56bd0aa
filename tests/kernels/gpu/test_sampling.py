"""Sampling in Triton against a sorted reference in float64: in the interpreter, or on a GPU."""

import numpy as np
import pytest
import torch
from simulated_memory import DEVICE

from loragate.kernels.gpu.sampling import draw

WAYS = {
    "temperature": (0.7, 1.0, 0.0),
    "top_p": (1.0, 0.9, 0.0),
    "small top_p": (0.8, 0.05, 0.0),
    "large top_p": (0.5, 0.9999, 0.0),
    "min_p": (1.3, 1.0, 0.1),
    "both": (1.0, 0.8, 0.02),
    "cold": (1e-4, 0.9, 0.0),
}
"""Temperature, top_p and min_p."""


def kept_set(logits: np.ndarray, temperature: float, top_p: float, min_p: float) -> np.ndarray:
    """Return which tokens of one row may be drawn, by a sort; `top_p` keeps tokens until their sum reaches it."""
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    order = np.argsort(-logits, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    kept = np.zeros(len(logits), dtype=bool)
    kept[order] = ((before < top_p * weights.sum()) | (top_p >= 1)) & (weights[order] >= min_p)
    kept[order[0]] = True
    return kept


def rows_of(count: int, vocabulary: int, spread: float) -> np.ndarray:
    """Return rows without equal logits."""
    generator = np.random.default_rng(vocabulary)
    order = np.stack([generator.permutation(vocabulary) for _ in range(count)])
    return ((order - vocabulary / 2) * (spread / vocabulary)).astype(np.float32)


def drawn(logits: np.ndarray, settings: list[tuple[float, ...]]) -> tuple[list[int], np.ndarray]:
    given = torch.tensor(settings, dtype=torch.float64, device=DEVICE)
    tokens, lowest = draw(torch.from_numpy(logits).to(DEVICE), given)
    return tokens.tolist(), lowest.cpu().numpy()


@pytest.mark.parametrize(("vocabulary", "spread"), [(1, 8.0), (40, 0.1), (40, 300.0), (5000, 8.0)])
def test_keeps_and_draws_what_a_sort_would(vocabulary: int, spread: float) -> None:
    uniforms = (0.0, 0.3, 0.999999)
    settings = [(*way, uniforms[i % 3]) for i, way in enumerate(WAYS.values())]
    logits = rows_of(len(settings), vocabulary, spread)
    tokens, lowest = drawn(logits, settings)
    for row, (temperature, top_p, min_p, uniform) in enumerate(settings):
        kept = kept_set(logits[row], temperature, top_p, min_p)
        weights = np.exp((logits[row].astype(np.float64) - logits[row].max()) / temperature)
        possible = weights > 2.0**-39  # the smallest that are sure to be counted
        assert np.array_equal((logits[row] >= lowest[row]) & possible, kept & possible), list(WAYS)[row]
        cumulative = np.cumsum(np.where(kept & possible, weights, 0.0))
        assert tokens[row] == np.searchsorted(cumulative, uniform * cumulative[-1], side="right"), list(WAYS)[row]


def test_ties_are_kept_together() -> None:
    logits = np.array([[1.0, 2.0, 1.0, -1.0, 1.0, 0.0, -0.0]], dtype=np.float32)
    for top_p, expected in ((0.4, {1}), (0.5, {0, 1, 2, 4}), (0.9, {0, 1, 2, 4, 5, 6})):
        settings = [(1.0, top_p, 0.0, (i + 0.5) / 16) for i in range(16)]
        tokens, _ = drawn(logits.repeat(16, axis=0), settings)
        assert set(tokens) == expected, top_p


def test_a_row_is_drawn_alike_alone_and_in_a_batch_and_wherever_it_lies() -> None:
    logits, settings = rows_of(3, 5000, 8.0), [(1.0, 0.9, 0.0, 0.5), (0.5, 1.0, 0.1, 0.2), (2.0, 0.5, 0.0, 0.7)]
    together, _ = drawn(logits, settings)
    assert together == [drawn(logits[i : i + 1], settings[i : i + 1])[0][0] for i in range(3)]
    wide = torch.zeros(3, 6000, device=DEVICE)
    wide[:, 100:5100] = torch.from_numpy(logits)
    given = torch.tensor(settings, dtype=torch.float64, device=DEVICE)
    assert draw(wide[:, 100:5100], given)[0].tolist() == together


def test_forbidden_tokens_are_not_drawn() -> None:
    logits = np.full((1, 300), -np.inf, dtype=np.float32)
    logits[0, [7, 123]] = 0.0
    settings = [(1.0, top_p, 0.0, uniform) for top_p in (1.0, 0.9) for uniform in (0.0, 0.4999, 0.5, 1.0)]
    tokens, _ = drawn(logits.repeat(8, axis=0), settings)
    assert tokens == [7, 7, 123, 123] * 2


@pytest.mark.filterwarnings("ignore:invalid value")  # of the interpreter
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_give_some_token(bad: float) -> None:
    logits = rows_of(2, 40, 8.0)
    logits[0] = bad
    tokens, _ = drawn(logits, [(1.0, 0.9, 0.0, 0.5), (1.0, 0.9, 0.0, 0.5)])
    assert 0 <= tokens[0] < 40
    assert tokens[1] == drawn(logits[1:], [(1.0, 0.9, 0.0, 0.5)])[0][0]
