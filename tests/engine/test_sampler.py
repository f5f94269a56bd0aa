"""Sampling: each control does what its definition says, and nothing depends on the neighbours."""

import math
from collections import Counter
from typing import Any

import pytest
import torch

from loragate.engine.sampler import sample, uniform
from loragate.engine.sequence import Request, SamplingParams, Sequence

EOS = frozenset([2])
VOCABULARY = 8


def sequence(prompt: tuple[int, ...] = (5,), output: tuple[int, ...] = (), index: int = 0, **sampling: Any) -> Sequence:
    params = SamplingParams(**{"max_tokens": 99, "seed": 1} | sampling)
    made = Sequence(Request(0, 0, prompt, None, params), index)
    made.tokens += output
    return made


def token(logits: list[float], **kwargs: Any) -> int | None:
    return sample(torch.tensor([logits]), [sequence(**kwargs)], EOS)[0].token


def frequencies(logits: list[float], **sampling: Any) -> Counter[int | None]:
    """Tokens drawn over 2,000 positions."""
    rows = [sequence(output=(0,) * i, temperature=sampling.get("temperature", 1.0), **{
        key: value for key, value in sampling.items() if key != "temperature"
    }) for i in range(2000)]  # fmt: skip
    return Counter(s.token for s in sample(torch.tensor([logits] * 2000), rows, frozenset()))


def test_greedy_takes_the_largest() -> None:
    assert token([0, 1, 0, 3, 0, 0, 0, 0]) == 3


def test_drawn_frequencies_follow_the_softmax_of_the_temperature() -> None:
    logits = [0.0, 1.0, 2.0, -1.0]
    for temperature in (0.5, 1.0, 2.0):
        drawn = frequencies(logits, temperature=temperature)
        expected = (torch.tensor(logits) / temperature).softmax(0).tolist()
        for candidate, probability in enumerate(expected):
            spread = 5 * math.sqrt(probability * (1 - probability) / 2000)
            assert abs(drawn[candidate] / 2000 - probability) < spread


def test_top_k_keeps_k() -> None:
    assert set(frequencies([0, 3, 1, 2.5, 0, 0, 0, 0], top_k=2)) == {1, 3}


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    logits = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
    assert set(frequencies(logits, top_p=0.5)) == {0}
    assert set(frequencies(logits, top_p=0.51)) == {0, 1}
    assert set(frequencies(logits, top_p=0.9)) == {0, 1, 2}


def test_min_p_is_relative_to_the_most_probable() -> None:
    logits = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
    assert set(frequencies(logits, min_p=0.25)) == {0, 1, 2}


def test_same_seed_same_token_whatever_the_batch() -> None:
    logits = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(0))
    mine = sequence(temperature=1.0, seed=77, output=(1, 2))
    alone = sample(logits, [mine], EOS)[0].token
    others = [sequence(temperature=0.3, seed=s, top_k=3) for s in range(5)]
    batch = torch.cat([torch.randn(5, VOCABULARY), logits])
    assert sample(batch, [*others, mine], EOS)[5].token == alone


def test_seed_index_and_position_each_change_the_draw() -> None:
    assert len({uniform(1, 0, 0), uniform(2, 0, 0), uniform(1, 1, 0), uniform(1, 0, 1)}) == 4
    assert all(0 <= uniform(seed, 0, 0) < 1 for seed in range(1000))


def test_repetition_penalty_counts_prompt_and_completion_once() -> None:
    assert token([0, 3.0, 0, 2.0, 0, 0, 0, 0], prompt=(1, 1), repetition_penalty=2.0) == 3
    assert token([-1.0, -3, -3, -3, -3, -1.5, -3, -3], prompt=(3,), output=(0,), repetition_penalty=2.0) == 5


def test_presence_and_frequency_count_the_completion_only() -> None:
    logits = [0, 3.0, 0, 2.0, 0, 0, 0, 0]
    assert token(logits, prompt=(1, 1, 1), presence_penalty=2.0, frequency_penalty=2.0) == 1
    assert token(logits, output=(1,), presence_penalty=1.5) == 3
    assert token(logits, output=(1, 1), frequency_penalty=0.6) == 3
    assert token(logits, output=(1, 1), presence_penalty=0.6) == 1


def test_logit_bias_is_added() -> None:
    assert token([0, 3.0, 0, 0, 0, 0, 0, 0], logit_bias=((4, 5.0), (1, -100.0))) == 4


def test_min_tokens_holds_back_eos_and_stop_tokens() -> None:
    logits = [0, 1.0, 9.0, 8.0, 0, 0, 0, 0]
    assert token(logits, min_tokens=2, stop_token_ids=frozenset([3])) == 1
    assert token(logits, min_tokens=2, output=(5, 5)) == 2


def test_logprobs_are_the_models_own() -> None:
    logits = [0, 1.0, 2.0, 0, 0, 0, 0, 0]
    chosen = sample(torch.tensor([logits]), [sequence(top_logprobs=2, logit_bias=((1, 9.0),))], EOS)[0]
    expected = torch.tensor(logits).log_softmax(0)
    assert chosen.token == 1
    assert chosen.logprob is not None
    assert chosen.logprob.logprob == pytest.approx(float(expected[1]))
    assert [t for t, _ in chosen.logprob.top] == [2, 1]


def test_a_row_that_is_not_finite_is_told_apart() -> None:
    logits = torch.zeros(2, VOCABULARY)
    logits[0, 3] = float("nan")
    bad, good = sample(logits, [sequence(temperature=1.0), sequence()], EOS)
    assert bad.token is None
    assert good.token == 0
