"""Reports runs to TensorBoard, MLflow and W&B with transformers' own callbacks; none of them can end a run.

The operator configures and maintains these systems: a tenant's training continues when one is unavailable.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from transformers import TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

logger = logging.getLogger(__name__)


class ReportingCallback:
    """One callback that forwards all events to others. One that raises is logged once and removed."""

    def __init__(self, makers: Sequence[Callable[[], TrainerCallback]], name: str) -> None:
        self._name = name
        self._reporters: list[TrainerCallback] = []
        for make in makers:
            try:
                self._reporters.append(make())
            except Exception as error:  # these libraries raise anything
                self._drop(make, error)

    def __getattr__(self, event: str) -> Callable[..., None]:
        if not hasattr(TrainerCallback, event):
            raise AttributeError(event)
        return partial(self._forward, event)

    def _forward(self, event: str, *given: Any, **named: Any) -> None:
        for reporter in tuple(self._reporters):
            try:
                getattr(reporter, event)(*given, **named)
            except Exception as error:
                self._reporters.remove(reporter)
                self._drop(type(reporter), error)

    def _drop(self, reporter: Callable[[], TrainerCallback], error: Exception) -> None:
        name = getattr(reporter, "__name__", "?")
        logger.warning("%s is no longer reported by %s: %s: %s", self._name, name, type(error).__name__, error)


def reporting_callbacks(names: Sequence[str], run: str) -> list[TrainerCallback]:
    """Return the callback for the systems that the operator has configured, if any."""
    if not names:
        return []
    return [cast(TrainerCallback, ReportingCallback(get_reporting_integration_callbacks(list(names)), run))]
