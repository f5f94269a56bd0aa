from loragate.cli.supervisor.child import Backoff


def test_the_first_restart_is_immediate_then_delays_double_up_to_a_bound() -> None:
    backoff = Backoff(first=1.0, longest=10.0, stable=30.0)
    assert [backoff.delay(0.1) for _ in range(7)] == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_long_life_resets_the_delay() -> None:
    backoff = Backoff(first=1.0, longest=10.0, stable=30.0)
    for _ in range(5):
        backoff.delay(0.1)
    assert backoff.delay(30.0) == 0.0
    assert backoff.delay(0.1) == 1.0


def test_a_thousand_deaths_do_not_overflow() -> None:
    backoff = Backoff()
    assert [backoff.delay(0.0) for _ in range(2000)][-1] == backoff.longest
