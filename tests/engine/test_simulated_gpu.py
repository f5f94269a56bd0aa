"""Everything that the engine does only on a GPU, without one (see `simulated_gpu`). The tokens equal PEFT's."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import simulated_gpu
import torch
from scored_prompts import scored_prompt
from tiny_models import add_adapter, greedy

from loragate.engine.local import LocalEngine
from loragate.engine.runtime import copy_stream
from loragate.engine.sequence.pooling import Pooling
from tests.engine.scheduling.test_scheduling import at_rest

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")

KINDS: dict[str, dict[str, Any]] = {
    "r4": {"r": 4},
    "dora": {"r": 8, "use_dora": True},
    "whole": {"r": 4, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
}
PROMPTS = [[5, 9, 13, 21] * 6, [40, 41, 42], [7], [(7 * i) % 90 + 3 for i in range(70)]]


@pytest.fixture(scope="module")
def engine(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    root = tmp_path_factory.mktemp("kinds")
    adapters = {name: add_adapter(tiny.model, root / name, seed, **o) for seed, (name, o) in enumerate(KINDS.items())}
    with pytest.MonkeyPatch.context() as patch:
        simulated_gpu.install(patch)
        engine = LocalEngine(
            tiny.base,
            root / "cache",
            adapters,
            device="cuda",
            threads=1,
            adapter_slots=2,
            max_batch_tokens=40,
            max_batch_size=5,
            block_size=8,
            max_model_len=120,
            kv_cache_tokens=256,
            kv_host_bytes=1 << 20,
        )
        yield engine
        engine.close()
    copy_stream._beside_steps.cache_clear()


def test_tokens_equal_peft(engine: LocalEngine, tiny: Any) -> None:
    """Steps run with and without graphs, adapters come through staging, and tokens are read late."""
    assert engine.core.stepper.late
    assert engine.core.graphs.recorded
    assert not engine.core.graphs.failed, "each recording computes the logits of its launches"
    names = [None, "r4", "dora", "whole"]
    asked = [(prompt, name) for prompt in PROMPTS for name in names]
    requests = [engine.submit(prompt, name, max_tokens=6, cache_salt=b"x") for prompt, name in asked]
    for request, (prompt, name) in zip(requests, asked, strict=True):
        assert engine.result(request)[-1].error is None
        found = engine.tokens(request)
        assert found == greedy(tiny.model, prompt, 6, name and engine._adapters[name], draft=found), name
    assert engine.core.graphs.replayed
    assert engine.core.graphs.launched
    at_rest(engine)


def test_other_transfers(engine: LocalEngine) -> None:
    """Sampling parameters and embeddings are transferred."""
    ways: list[dict[str, Any]] = [
        {"temperature": 0.8, "top_p": 0.9},
        {"repetition_penalty": 1.3, "min_tokens": 3, "stop_token_ids": frozenset(range(50))},
        {"top_logprobs": 3, "logit_bias": ((9, 3.0),)},
    ]
    for request in [engine.submit(PROMPTS[0], "r4", max_tokens=5, **way) for way in ways]:
        assert engine.result(request)[-1].error is None
    assert engine.embed(PROMPTS[3], "dora", Pooling.MEAN)
    scored = engine.result(engine.submit(PROMPTS[3], "dora", prompt_logprobs=2, max_tokens=0))
    assert len(scored_prompt(scored).top) == len(PROMPTS[3]) - 1


def test_all_work_outside_steps_shares_a_stream(engine: LocalEngine) -> None:
    """torch keeps freed memory for the stream that used it: with a stream for each adapter, none would be left."""
    with copy_stream.aside(simulated_gpu.GPU):
        made = simulated_gpu.Stream.made
    with copy_stream.aside(simulated_gpu.GPU):
        assert simulated_gpu.Stream.made == made


def test_a_thread_that_reads_an_adapter_does_not_delay_steps(engine: LocalEngine) -> None:
    """After each of its dozens of calls, the step loop may have to wait this long for the interpreter."""
    assert sys.getswitchinterval() < 0.001
