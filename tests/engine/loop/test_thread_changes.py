"""An engine whose number of threads changes between steps."""

from collections.abc import Callable

import pytest
import torch
from skip_for_missing import skip_for_missing
from tiny_models import greedy

from loragate.engine.local import LocalEngine
from loragate.engine.runtime.contention import Contention, ContentionMeter, measurable
from loragate.engine.runtime.thread_governor import ThreadGovernor
from loragate.kernels import cpu
from loragate.kernels.cpu.openmp import compute_with

PROMPTS = [[5, 6, 7] * 9, [9], [3, 4] * 30, [11, 12, 13]]
NAMES = ["a", None, "b", "a"]
NEW = 24


@pytest.fixture(autouse=True)
def several_threads() -> object:
    before = torch.get_num_threads()
    compute_with(3)
    yield
    compute_with(before)


def run(engine: LocalEngine) -> list[list[tuple[int | None, float | None]]]:
    """Return the tokens and logprobs of all prompts in one batch."""
    pairs = zip(PROMPTS, NAMES, strict=True)
    requests = [engine.submit(prompt, name, max_tokens=NEW, top_logprobs=0) for prompt, name in pairs]
    outputs = [engine.result(request) for request in requests]
    return [[(o.token, o.logprob and o.logprob.logprob) for o in each] for each in outputs]


def test_tokens_stay_the_same(start: Callable[..., LocalEngine], tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(start(threads=1))
    used = []

    def change(self: ThreadGovernor, now: float, seconds: float) -> None:
        used.append(torch.get_num_threads())
        compute_with(1 + len(used) % 3)

    monkeypatch.setattr(ThreadGovernor, "step_ended", change)
    found = run(start(threads=None))
    assert set(used) == {1, 2, 3}
    for prompt, name, here, there in zip(PROMPTS, NAMES, found, expected, strict=True):
        tokens = [token for token, _ in here]
        assert tokens == greedy(tiny.model, prompt, NEW, name and tiny.adapters[name])
        assert [token for token, _ in there] == tokens
        # torch's attention of short chunks sums in another order with several threads.
        assert [value for _, value in here] == pytest.approx([value for _, value in there], abs=1e-4)


def test_an_engine_beside_a_busy_process_computes_with_fewer_threads(
    start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (cpu.available() and measurable()):
        skip_for_missing("Linux's counters, and OpenMP as torch's wheels bring it")
    monkeypatch.setattr("loragate.engine.runtime.thread_governor._INTERVAL", 0.0)
    monkeypatch.setattr(ContentionMeter, "read", lambda self, busy: Contention(delay=1.0, free=0.0))
    free, fixed = start(threads=None), start(threads=3)
    for engine in (free, fixed):
        engine.generate(PROMPTS[0], max_tokens=8)
    assert (free.core.governor.threads, fixed.core.governor.threads) == (1, 3)
