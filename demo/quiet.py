"""Keeps the libraries' own bars and notices out of the demo's progress."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """No bars from transformers, and no notices of bitsandbytes, which PEFT imports and the demo does not use."""
    from transformers.utils import logging as transformers_logging

    notices = logging.getLogger("bitsandbytes")
    level, bars = notices.level, transformers_logging.is_progress_bar_enabled()
    notices.setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        notices.setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()
