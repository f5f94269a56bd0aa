"""How much prefill a step contains, derived from the times of earlier steps, and its effect on a scheduler's steps."""

import pytest
from stepping import Stepping

from loragate.engine.scheduling.scheduler import Limits
from loragate.engine.scheduling.step_budget import MAX_SCORED_ROWS, MIN_CHUNK, StepTimes


def seconds(decoding: int, prefill: int) -> float:
    """Return a step's time on a machine with 10 ms a step, 0.1 ms a decoding row, and 1 ms a prompt token."""
    return 0.010 + 0.0001 * decoding + 0.001 * prefill


def test_nothing_is_known_at_first() -> None:
    assert StepTimes(0.05).prefill_budget(512, decoding=4) == 512


def test_without_a_target_the_rows_are_the_only_bound() -> None:
    times = StepTimes(None)
    times.observe(4, 100, 10.0)
    assert times.prefill_budget(512, decoding=4) == 512


def test_without_decoding_rows_prefill_is_not_limited() -> None:
    times = StepTimes(0.05)
    times.observe(0, 100, 10.0)
    assert times.prefill_budget(512, decoding=0) == 512


def test_steps_approach_the_target() -> None:
    times = StepTimes(0.05)
    for _ in range(30):
        times.observe(8, 0, seconds(8, 0))
        budget = times.prefill_budget(512, decoding=8)
        times.observe(8, budget, seconds(8, budget))
    assert seconds(8, times.prefill_budget(512, decoding=8)) == pytest.approx(0.05, rel=0.05)


def test_prompts_progress_where_decoding_alone_exceeds_the_target() -> None:
    times = StepTimes(0.05)
    times.observe(64, 0, 0.08)
    times.observe(64, 100, 0.2)
    assert times.prefill_budget(512, decoding=64) == MIN_CHUNK


@pytest.mark.parametrize(("target", "longest"), [(0.05, 0.056), (None, 0.2)])
def test_a_long_prompt_delays_others_tokens_by_at_most_the_target(target: float | None, longest: float) -> None:
    engine = Stepping(limits=Limits(512, 8, 1 << 20, target), blocks=2000)

    def step() -> float:
        rows = engine.step()
        prefill = sum(tokens for tokens in rows.values() if tokens > 1)
        took = seconds(len(rows), prefill)
        engine.scheduler.record_step(engine.scheduler.work, took)
        return took

    decoding = [engine.submit("t", prompt=32, new=500)[0] for _ in range(4)]
    for _ in range(20):
        step()
    engine.submit("t", prompt=200, new=500)  # the steps to learn from
    for _ in range(20):
        step()
    (prompt,) = engine.submit("t", prompt=4000, new=2)
    times = []
    while not prompt.generated:
        times.append(step())
    assert all(sequence.generated for sequence in decoding)
    if target is None:
        assert max(times) > longest
    else:
        assert max(times) < longest
        assert len(times) < 130, "the prompt gets all that the target allows"


def scoring_seconds(decoding: int, scored: int, prefill: int = 0) -> float:
    """Return the time of a step in which the logits of a prompt token take 4 ms."""
    return seconds(decoding, prefill + scored) + 0.004 * scored


@pytest.mark.parametrize("decoding", [0, 8])
def test_scored_prompts_approach_the_target(decoding: int) -> None:
    """It holds for them whether others decode or not: a request that arrives waits for the step."""
    times = StepTimes(0.1)
    first = times.scoring_budget(decoding)
    assert MIN_CHUNK < first < MAX_SCORED_ROWS
    for _ in range(30):
        times.observe(8, 0, seconds(8, 0))
        times.observe(decoding, 50, seconds(decoding, 50))
        scored = times.scoring_budget(decoding)
        times.observe(decoding, scored, scoring_seconds(decoding, scored), scored)
    assert scoring_seconds(decoding, times.scoring_budget(decoding)) == pytest.approx(0.1, rel=0.15)
    assert times.seconds_per_prompt_token == pytest.approx(0.001, rel=0.25)


def test_scored_and_plain_prompts_share_the_target() -> None:
    times = StepTimes(0.1)
    for _ in range(30):
        times.observe(8, 0, seconds(8, 0))
        times.observe(8, 50, seconds(8, 50))
        times.observe(8, 20, scoring_seconds(8, 20), 20)
    prefill, scored = times.prefill_budget(512, 8), 5
    plain = prefill - scored - times.prefill_equivalent(scored)
    assert scoring_seconds(8, scored, plain) == pytest.approx(seconds(8, prefill), rel=0.05)


def test_scored_rows_are_bounded_without_a_target() -> None:
    times = StepTimes(None)
    assert times.scoring_budget(4) == MAX_SCORED_ROWS
    times.observe(0, 100, 10.0, 100)
    assert times.scoring_budget(0) == times.scoring_budget(4) == MAX_SCORED_ROWS


def test_scored_prompts_progress_where_decoding_alone_exceeds_the_target() -> None:
    times = StepTimes(0.05)
    times.observe(64, 0, 0.08)
    times.observe(64, 16, 0.2, 16)
    assert times.scoring_budget(64) == MIN_CHUNK
