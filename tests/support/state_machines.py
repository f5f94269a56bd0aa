"""Runs of hypothesis' state machines: short ones in the fast tests, and long ones in the long tests."""

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_machine(machine: Callable[[], RuleBasedStateMachine], examples: int, steps: int = 50) -> None:
    """Run this many sequences of at most so many steps each. Raise what a step raises, for the shortest sequence."""
    checks = list(HealthCheck)
    bounds = settings(max_examples=examples, stateful_step_count=steps, suppress_health_check=checks)
    run_state_machine_as_test(machine, settings=bounds)  # type: ignore[no-untyped-call]
