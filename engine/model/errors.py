"""Errors of base models that cannot be served."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

_EXIT_REJECTED = 2  # of the engine's process: a restart would not help


class ModelRejected(Exception):
    """This base model cannot be served; the message says why and what to do."""


@contextmanager
def exit_if_rejected() -> Iterator[None]:
    """End the process with status 2, and the reason in the log, if the block rejects the model."""
    try:
        yield
    except ModelRejected as error:
        log.error("%s", error)
        raise SystemExit(_EXIT_REJECTED) from error
