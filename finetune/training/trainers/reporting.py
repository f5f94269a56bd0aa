"""TensorBoard, MLflow and W&B by transformers' own callbacks, none of which can end a run.

Where runs are reported is the operator's to say, and what becomes of it is the operator's to mend: a tenant's training
goes on when a tracking server is gone.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from transformers import TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

logger = logging.getLogger(__name__)


class ReportingCallback:
    """One callback that passes all events on to others. One that raises is told about once, and hears no more."""

    def __init__(self, makers: Sequence[Callable[[], TrainerCallback]], name: str) -> None:
        self._name = name
        self._reporters: list[TrainerCallback] = []
        for make in makers:
            try:
                self._reporters.append(make())
            except Exception as error:  # whatever they raise
                self._give_up(make, error)

    def __getattr__(self, event: str) -> Callable[..., None]:
        if not hasattr(TrainerCallback, event):
            raise AttributeError(event)
        return partial(self._pass_on, event)

    def _pass_on(self, event: str, *given: Any, **named: Any) -> None:
        for reporter in tuple(self._reporters):
            try:
                getattr(reporter, event)(*given, **named)
            except Exception as error:
                self._reporters.remove(reporter)
                self._give_up(type(reporter), error)

    def _give_up(self, reporter: Callable[[], TrainerCallback], error: Exception) -> None:
        name = getattr(reporter, "__name__", "?")
        logger.warning("%s is not reported by %s any more: %s: %s", self._name, name, type(error).__name__, error)


def reporting(names: Sequence[str], run: str) -> list[TrainerCallback]:
    """To where the operator wants it, if anywhere."""
    if not names:
        return []
    return [cast(TrainerCallback, ReportingCallback(get_reporting_integration_callbacks(list(names)), run))]
