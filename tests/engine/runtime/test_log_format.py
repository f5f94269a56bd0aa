"""What log lines contain, and what they omit."""

import json
import logging
from typing import Any

import pytest

from loragate.engine.runtime.log_format import Fields, JsonLines, TextLines, exception_text

SECRET = "what a client wrote"


def record(message: object, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    info: Any = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("loragate.part", logging.ERROR, __file__, 1, message, arguments, info)  # type: ignore[arg-type]


def raised() -> BaseException:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error
    except ValueError as error:
        return error


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
def test_exceptions_are_logged_without_their_messages(form: logging.Formatter) -> None:
    line = form.format(record("it failed", error=raised()))
    assert SECRET not in line
    for there in ("it failed", "KeyError", "ValueError", "in raised", "which led to"):
        assert there in line
    group = exception_text(ExceptionGroup(SECRET, [raised(), OSError(28, "No space left on device", SECRET)]))
    assert SECRET not in group
    assert "No space left on device" in group


def test_json_has_an_object_a_line() -> None:
    line = JsonLines().format(record("two\nlines and %s", "more", error=raised()))
    assert "\n" not in line
    parsed = json.loads(line)
    assert parsed["message"] == "two\nlines and more"
    assert (parsed["level"], parsed["logger"]) == ("ERROR", "loragate.part")
    assert parsed["time"].endswith("+00:00")


def test_fields_belong_to_their_line() -> None:
    line = record(Fields(status=200, route="/v1/models"))
    assert json.loads(JsonLines().format(line)).items() >= {"status": 200, "route": "/v1/models"}.items()
    assert TextLines().format(line).endswith('loragate.part: {"status": 200, "route": "/v1/models"}')
