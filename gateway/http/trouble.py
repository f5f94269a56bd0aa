"""Logging of unhandled exceptions without what they quote."""

import logging
import traceback


def log_trouble(log: logging.Logger, error: BaseException, request_id: str) -> None:
    """Where `error` came from. Its message is left out: it may hold a prompt or a key."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("request %s failed: %s\n%s", request_id, type(error).__qualname__, frames)
