from loragate.engine.adapters.use_frequency import UseFrequency
from tests.support.pool_harness import PoolHarness, key


def test_the_past_fades() -> None:
    frequency = UseFrequency(sample=8)
    for _ in range(7):
        frequency.record(key("old"))
    frequency.record(key("new"))
    assert (frequency[key("old")], frequency[key("new")], frequency[None]) == (3, 0, 0)


def test_no_more_adapters_are_known_than_uses_are_sampled() -> None:
    frequency = UseFrequency(sample=100)
    for number in range(10_000):
        frequency.record(key(f"a{number}"))
    assert len(frequency._counts) <= 100


def use(harness: PoolHarness, name: str) -> None:
    harness.pool.release(harness.bring(name))


def test_requests_for_rare_adapters_do_not_evict_a_frequent_one() -> None:
    harness = PoolHarness(slots=3)
    for _ in range(3):
        use(harness, "frequent")
    for rare in ("a", "b", "c", "d", "e"):
        use(harness, rare)
    assert "frequent" in harness.residents
    harness.check_contents()


def test_an_adapter_that_becomes_frequent_replaces_one_that_was() -> None:
    harness = PoolHarness(slots=2)
    for name in ("a", "b") * 4:
        use(harness, name)
    for _ in range(5):
        use(harness, "c")
        use(harness, "d")
    assert harness.residents == {"c", "d"}
