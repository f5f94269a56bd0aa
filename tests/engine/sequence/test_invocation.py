"""The position in a prompt from which activated LoRA applies; tokens before it are shared with the base model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import add_adapter, greedy

from loragate.engine.sequence.sequence import NEVER, active_from

SALT = b"a tenant's"


@pytest.mark.parametrize(
    ("invocation", "prompt", "start"),
    [
        ((2, 3), (1, 2, 3), 1),
        ((2, 3), (2, 3, 2, 3, 4), 2),
        ((2, 2), (2, 2, 2), 1),
        ((2, 3), (2, 4, 3), NEVER),
        ((1, 2, 3), (2, 3), NEVER),
        ((5,), (5,), 0),
    ],
)
def test_the_last_occurrence_counts(invocation: tuple[int, ...], prompt: tuple[int, ...], start: int) -> None:
    assert active_from(invocation, prompt) == start


def test_the_prompt_before_it_uses_the_base_model(tiny: Any, start: Callable[..., Any], tmp_path: Path) -> None:
    adapters = {
        name: add_adapter(tiny.model, tmp_path / name, seed, alora_invocation_tokens=[7, 3])
        for seed, name in enumerate(("one", "other"))
    }
    engine = start(adapters=adapters)
    common = [11, 12, 13, 14, 15, 16, 17, 18] * 3
    engine.result(engine.submit(common, cache_salt=SALT, max_tokens=1))
    for name, adapter in adapters.items():
        prompt = [*common, 7, 3, 20, 21]
        request = engine.submit(prompt, name, cache_salt=SALT)
        outputs = engine.result(request)
        assert outputs[0].cached_tokens == len(common), "what the base model had computed serves every adapter"
        assert engine.tokens(request) == greedy(tiny.model, prompt, 8, adapter)


def test_equal_prompts_that_differ_only_in_the_invocation(tiny: Any, start: Callable[..., Any], tmp_path: Path) -> None:
    """The adapter and the first tokens are the same, but the adapter applies to them in one of the prompts only."""
    adapter = add_adapter(tiny.model, tmp_path / "a", 1, alora_invocation_tokens=[7, 3])
    engine = start(adapters={"a": adapter})
    first = [5, 7, 3, *range(30, 60)]
    for prompt in (first, [*first, 7, 3, 9], first):
        request = engine.submit(prompt, "a", cache_salt=SALT)
        engine.result(request)
        assert engine.tokens(request) == greedy(tiny.model, prompt, 8, adapter)
