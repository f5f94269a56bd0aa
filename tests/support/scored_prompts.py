"""The logprobs of a prompt's tokens, as an engine's outputs give them, and their comparison with PEFT's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.sequence.output import Output


@dataclass(frozen=True)
class ScoredPrompt:
    """One entry for each token of a prompt but the first; `top` holds (token, logprob)."""

    logprobs: list[float]
    ranks: list[int]
    top: list[list[tuple[int, float]]]


def scored_prompt(outputs: Iterable[Output]) -> ScoredPrompt:
    """Join the parts of a prompt."""
    found = ScoredPrompt([], [], [])
    for output in outputs:
        part = output.prompt_logprobs
        if part is None:
            continue
        assert output.token is None, "the prompt comes before the tokens"
        found.logprobs.extend(part.logprobs)
        found.ranks.extend(part.ranks)
        pairs = list(zip(part.top_ids, part.top_logprobs, strict=True))
        found.top.extend(pairs[at * part.top : (at + 1) * part.top] for at in range(len(part.logprobs)))
    return found


def check(found: ScoredPrompt, prompt: Sequence[int], expected: Tensor, top: int, within: float = 1e-5) -> None:
    """Compare with the logprobs [tokens - 1, vocabulary] of a plain forward pass."""
    own = expected.gather(1, torch.tensor(list(prompt[1:]), dtype=torch.long)[:, None])
    assert len(found.logprobs) == len(found.ranks) == len(found.top) == len(prompt) - 1
    assert_near(torch.tensor(found.logprobs, dtype=torch.double), own[:, 0], within)
    # a tie to within rounding may come out either way
    most, least = ((expected > own + off).sum(dim=-1) + 1 for off in (-10 * within, 10 * within))
    ranks = torch.tensor(found.ranks, dtype=torch.long)
    assert bool(((least <= ranks) & (ranks <= most)).all())
    largest = expected.topk(top).values
    for pairs, values, row in zip(found.top, largest, expected, strict=True):
        given = torch.tensor([logprob for _, logprob in pairs], dtype=torch.double)
        assert_near(given, values, within)
        assert_near(given, row[[token for token, _ in pairs]], within)


def assert_near(found: Tensor, expected: Tensor, within: float) -> None:
    """Compare element by element; `within` is absolute."""
    torch.testing.assert_close(found, expected, rtol=0, atol=within)
