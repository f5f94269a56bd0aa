"""Logging of a repeated problem once, and of its end."""

import logging


class LogOnce:
    def __init__(self, log: logging.Logger, *, resolved: str) -> None:
        self._log = log
        self._resolved = resolved
        self._message: str | None = None

    def report(self, message: str, error: Exception) -> None:
        """Log the problem unless it was the last one reported."""
        if message != self._message:
            self._log.error("%s: %s", message, error)
        self._message = message

    def resolved(self) -> None:
        """Log that the problem is over."""
        if self._message is not None:
            self._log.info(self._resolved)
        self._message = None
