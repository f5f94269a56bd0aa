"""The number of engines by queues and requests."""

import pytest

from loragate.engine.fleet.scaling import engines_wanted


@pytest.mark.parametrize(
    ("queues", "requests", "wanted"),
    [
        ([0.0], [0.0], 1),
        ([1.1], [40.0], 2),
        ([0.9], [40.0], 1),
        ([3.0, 0.0], [40.0, 8.0], 3),  # 1.5 s on average
        ([0.0, 0.0], [16.0, 0.0], 1),
        ([0.0, 0.0], [16.0, 1.0], 2),
        ([0.5, 0.5, 0.5], [16.0, 16.0, 1.0], 3),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 2),  # one at a time
        ([], [], 1),
    ],
)
def test_engines_wanted(queues: list[float], requests: list[float], wanted: int) -> None:
    assert engines_wanted(queues, requests, max_queue_seconds=1.0, requests_per_engine=16.0) == wanted
