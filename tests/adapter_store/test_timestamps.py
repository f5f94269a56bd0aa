"""Time that decides on expiry, while the wall clock is set and drifts."""

import pytest

from loragate.adapter_store import timestamps
from loragate.adapter_store.timestamps import SteadyTime

DAY = 86400.0


class Machine:
    """A machine whose wall clock may be wrong; `steady` is under test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elapsed = 0.0
        self.steady = SteadyTime()
        monkeypatch.setattr(timestamps, "elapsed", lambda: self.elapsed)

    def now(self, elapsed: float, wall: float) -> float:
        self.elapsed = elapsed
        return self.steady.now(wall)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_clock_that_is_right_is_followed(machine: Machine) -> None:
    for second in range(0, 40 * 86400, 3600):
        assert machine.now(second, 1000.0 + second) == 1000.0 + second


def test_setting_it_back_takes_no_time_back(machine: Machine) -> None:
    machine.now(0, 1000.0)
    assert machine.now(3600, 1000.0) == pytest.approx(4600, abs=1)
    assert machine.now(7200, 1000.0 - DAY) == pytest.approx(8200, abs=2)


def test_a_wrong_jump_forward_counts_while_it_lasts(machine: Machine) -> None:
    machine.now(0, 1000.0)
    assert machine.now(10, 1010.0 + DAY) == 1010.0 + DAY
    assert machine.now(3600, 4600.0 + DAY) == 4600.0 + DAY
    assert machine.now(3610, 4610.0) == 4610.0, "it is not remembered"
    assert machine.now(3620, 1000.0) == pytest.approx(4620, abs=1), "and the ratchet still holds"


def test_steps_that_are_small_are_remembered(machine: Machine) -> None:
    machine.now(0, 1000.0)
    machine.now(10, 1040.0)
    assert machine.now(20, 1000.0) == pytest.approx(1050, abs=0.1)


@pytest.mark.parametrize("drift", [-1e-4, 1e-4])
def test_clocks_that_drift_apart_stay_together(machine: Machine, drift: float) -> None:
    """The database's clock is another machine's: what differs by 9 seconds a day is not frozen after a month."""
    for hour in range(0, 24 * 60, 7):
        wall = 1000.0 + hour * 3600 * (1 + drift)
        assert machine.now(hour * 3600.0, wall) == wall
    late = 70 * DAY
    assert machine.now(late, 1000.0 + late * (1 + drift)) == 1000.0 + late * (1 + drift)
