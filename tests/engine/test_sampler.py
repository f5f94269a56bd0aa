"""Each sampling control does what its definition says, and nothing depends on the neighbours."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from loragate.engine.sampling.random_sampling import draw
from loragate.engine.sampling.sampler import choose, sample, uniform
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels import gpu

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
    """Return how often each token is drawn over 2,000 positions."""
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
    logits = [0, 3, 1, 2.5, 0, 0.5, 0, 0]
    assert set(frequencies(logits, top_k=2)) == {1, 3}
    assert set(frequencies(logits, top_k=3)) == {1, 2, 3}
    assert set(frequencies(logits, top_k=3, top_p=0.9)) == {1, 3}, "of what is left"


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    logits = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
    assert set(frequencies(logits, top_p=0.5)) == {0}
    assert set(frequencies(logits, top_p=0.51)) == {0, 1}
    assert set(frequencies(logits, top_p=0.9)) == {0, 1, 2}


def test_min_p_is_relative_to_the_most_probable() -> None:
    logits = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
    assert set(frequencies(logits, min_p=0.25)) == {0, 1, 2}


@pytest.mark.parametrize("spread", [0.1, 8.0, 40.0, 400.0])
def test_large_vocabularies_are_sampled_as_if_fully_sorted(spread: float) -> None:
    """This holds whether a few candidates are left, or thousands."""
    draws, size = 40, 6000
    generator = np.random.default_rng(int(spread))
    logits = np.stack([generator.permutation(size) for _ in range(draws)]).astype(np.float32) * (spread / size)
    ways = [{"top_p": 0.9}, {"top_p": 0.999, "temperature": 0.5}, {"min_p": 0.2}, {"top_p": 0.7, "min_p": 0.01}]
    params = [SamplingParams(max_tokens=1, seed=0, **{"temperature": 1.0} | ways[i % 4]) for i in range(draws)]
    uniforms = generator.random(draws)
    drawn = draw(torch.from_numpy(logits), params, uniforms.tolist()).tolist()
    assert drawn == [_sorted_draw(*each) for each in zip(logits, params, uniforms, strict=True)]


def _sorted_draw(logits: np.ndarray, p: SamplingParams, uniform: float) -> int:
    order = np.argsort(-logits)
    scaled = logits[order].astype(np.float64) / p.temperature
    probabilities = np.exp(scaled - scaled[0])
    probabilities /= probabilities.sum()
    before = np.cumsum(probabilities) - probabilities
    left = np.cumsum(np.where((before < p.top_p) & (probabilities >= p.min_p * probabilities[0]), probabilities, 0.0))
    return int(order[np.searchsorted(left, uniform * left[-1], side="right")])


@pytest.mark.skipif(torch.cuda.is_available(), reason="patches a kernel onto the CPU")
def test_a_gpu_keeps_the_same_tokens_without_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that may be drawn is drawn at some number, and nothing else; top_k is sorted, as on a CPU."""
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    logits = torch.tensor([[math.log(p) for p in (0.02, 0.4, 0.08, 0.3, 0.15, 0.05)]])
    ways: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"top_p": 0.8}, [1, 3, 4]),
        ({"min_p": 0.15}, [1, 2, 3, 4]),
        ({"top_k": 2}, [1, 3]),
    ]
    for settings, kept in ways:
        params = [SamplingParams(max_tokens=1, seed=0, temperature=1.0, **settings)]
        rows = 16 if settings else 64  # the least probable of all needs more
        drawn = draw(logits.repeat(rows, 1), params * rows, [i / rows for i in range(rows)]).tolist()
        assert sorted(set(drawn)) == kept, settings
        assert drawn == sorted(drawn) or "top_k" in settings, "in the vocabulary's order"


def test_same_seed_same_token_in_any_batch() -> None:
    logits = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(0))
    mine = sequence(temperature=1.0, seed=77, output=(1, 2))
    alone = sample(logits, [mine], EOS)[0].token
    others = [sequence(temperature=0.3, seed=s, top_k=3) for s in range(5)]
    batch = torch.cat([torch.randn(5, VOCABULARY), logits])
    assert sample(batch, [*others, mine], EOS)[5].token == alone


MIXED = (
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.6, "top_logprobs": 0},
    {"temperature": 2.0, "top_p": 0.9, "repetition_penalty": 1.3},
    {"temperature": 1.0, "min_p": 0.1, "min_tokens": 3},
    {"logit_bias": ((4, 3.5), (1, -100.0)), "top_logprobs": 3},
    {"top_logprobs": 5},
)


def test_a_mixed_batch_gives_each_row_what_it_gets_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(5 * len(MIXED), 40, generator=generator)).bfloat16()  # in which many are equal
    rows = [sequence(seed=seed, **MIXED[seed % len(MIXED)]) for seed in range(len(logits))]
    logits[3, 7] = float("nan")
    alone = [sample(logits[i : i + 1], [row], EOS)[0] for i, row in enumerate(rows)]
    assert sample(logits, rows, EOS) == alone
    assert [i for i, each in enumerate(alone) if each.token is None] == [3]


def test_impossible_tokens_are_not_drawn_where_rounding_leaves_nothing_else() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf, -math.inf]])
    for sampling in (SamplingParams(9, 1, temperature=1.0), SamplingParams(9, 1, temperature=1.0, top_k=3)):
        assert draw(logits, [sampling], [1.0]).item() < 2


class Asked(TorchDispatchMode):
    """Records the operations that are requested of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.doubles = 0  # of one tensor, at most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.overloadpacket.__name__] += 1
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            self.doubles = max(self.doubles, result.numel())
        return result


def test_sampling_does_not_wait_for_the_device() -> None:
    rows = [sequence(seed=seed, **each) for seed, each in enumerate(MIXED)]
    with Asked() as asked:
        choose(torch.randn(len(rows), 40), rows, EOS)
    assert "searchsorted" in asked.names
    assert asked.names.keys().isdisjoint({"_local_scalar_dense", "is_nonzero", "nonzero", "equal", "bincount", "index"})


def test_rows_with_different_top_k_share_computations() -> None:
    """Otherwise one tenant's requests would delay all steps: each computation is dozens of launches."""
    rows = [sequence(temperature=1.0, top_k=k) for k in range(1, 41)]
    with Asked() as asked:
        choose(torch.randn(len(rows), 4000), rows, EOS)
    assert asked.names["topk"] <= 7
    assert asked.doubles <= 40 * 64, "only what may be drawn"


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


def test_min_tokens_suppresses_eos_and_stop_tokens() -> None:
    logits = [0, 1.0, 9.0, 8.0, 0, 0, 0, 0]
    assert token(logits, min_tokens=2, stop_token_ids=frozenset([3])) == 1
    assert token(logits, min_tokens=2, output=(5, 5)) == 2


def test_logprobs_are_those_of_the_model() -> None:
    logits = [0, 1.0, 2.0, 0, 0, 0, 0, 0]
    chosen = sample(torch.tensor([logits]), [sequence(top_logprobs=2, logit_bias=((1, 9.0),))], EOS)[0]
    expected = torch.tensor(logits).log_softmax(0)
    assert chosen.token == 1
    assert chosen.logprob is not None
    assert chosen.logprob.logprob == pytest.approx(float(expected[1]))
    assert [t for t, _ in chosen.logprob.top] == [2, 1]


def test_a_row_that_is_not_finite_is_marked() -> None:
    logits = torch.zeros(2, VOCABULARY)
    logits[0, 3] = float("nan")
    bad, good = sample(logits, [sequence(temperature=1.0), sequence()], EOS)
    assert bad.token is None
    assert good.token == 0
