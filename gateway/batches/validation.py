"""Validation of a batch's input file, before any line is run. The bodies of its requests are validated one by one when
they are run, as those of other requests are."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import pydantic_core

from loragate.adapter_store.batches.batch import MAX_ERRORS, BatchError
from loragate.gateway.batches.input_lines import InputLine

_MAX_CUSTOM_ID = 512
_DIGEST_BYTES = 16  # of a custom id, which is kept in its place


class InputInvalid(Exception):
    """A line is no request of its batch."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param


def parse_line(content: bytes) -> dict[str, Any]:
    """Return the object of a line. Raise InputInvalid."""
    if not content:
        raise InputInvalid("line_too_long", "The line is longer than a request may be.")
    try:
        document = pydantic_core.from_json(content, allow_inf_nan=False)
    except ValueError:
        raise InputInvalid("invalid_json_line", "The line is not valid JSON.") from None
    if not isinstance(document, dict):
        raise InputInvalid("invalid_json_line", "The line is not a JSON object.")
    return document


class InputValidator:
    """Checks the lines of one file in order. `errors` are its first problems, `total` the lines so far."""

    def __init__(self, endpoint: str, max_lines: int) -> None:
        self.errors: list[BatchError] = []
        self.total = 0
        self._endpoint = endpoint
        self._max_lines = max_lines
        self._seen: set[bytes] = set()

    @property
    def done(self) -> bool:
        """Whether no further line needs to be read."""
        return len(self.errors) >= MAX_ERRORS or self.total > self._max_lines

    def add(self, lines: Iterable[InputLine]) -> None:
        """Check further lines."""
        for line in lines:
            if self.done:
                return
            self.total += 1
            try:
                self._check(parse_line(line.content))
            except InputInvalid as problem:
                self.errors.append(BatchError(problem.code, problem.message, line.number, problem.param))

    def finish(self) -> None:
        """Check what only the whole file shows."""
        if self.total > self._max_lines:
            words = f"The file has more than {self._max_lines} lines, the maximum for a batch."
            self.errors = [BatchError("too_many_lines", words)]
        elif not self.total:
            self.errors = [BatchError("empty_file", "The file has no lines.")]

    def _check(self, line: Mapping[str, Any]) -> None:
        self._check_id(line.get("custom_id"))
        if line.get("method") != "POST":
            raise InputInvalid("invalid_method", "`method` must be POST.", "method")
        if line.get("url") != self._endpoint:
            words = f"`url` must be {self._endpoint}, the endpoint of the batch."
            raise InputInvalid("mismatched_url", words, "url")
        body = line.get("body")
        if not isinstance(body, dict):
            raise InputInvalid("invalid_body", "`body` must be a JSON object.", "body")
        if not isinstance(body.get("model"), str):
            raise InputInvalid("missing_required_parameter", "`body.model` is required.", "body.model")

    def _check_id(self, custom_id: object) -> None:
        if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= _MAX_CUSTOM_ID:
            words = f"`custom_id` must be a text of 1 to {_MAX_CUSTOM_ID} characters."
            raise InputInvalid("invalid_custom_id", words, "custom_id")
        digest = blake2b(custom_id.encode(), digest_size=_DIGEST_BYTES).digest()
        if digest in self._seen:
            words = "Another line has the same `custom_id`."
            raise InputInvalid("duplicate_custom_id", words, "custom_id")
        self._seen.add(digest)
