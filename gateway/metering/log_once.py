"""Says what is wrong once, not every second, and when it is over."""

import logging


class Trouble:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said: str | None = None

    def say(self, words: str, error: Exception) -> None:
        """Something is wrong, perhaps still."""
        if words != self._said:
            self._log.error("%s: %s", words, error)
        self._said = words

    def over(self) -> None:
        """All is well."""
        if self._said is not None:
            self._log.info("usage is recorded and settled again")
        self._said = None
