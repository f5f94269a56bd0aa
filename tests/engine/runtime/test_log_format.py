"""What log lines contain, and what they omit."""

import json
import logging
import sys
from typing import Any

import pytest

from loragate.engine.runtime.log_format import STAGE, Fields, JsonLines, TextLines, exception_text, log_to_stderr

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


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[logging.Handler]:
    """Make stderr a terminal; return the handlers that are set then."""
    handlers: list[logging.Handler] = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(logging, "basicConfig", lambda **given: handlers.extend(given["handlers"]))
    return handlers


def shown(handlers: list[logging.Handler], name: str, level: int, **extra: object) -> str:
    """Return what the only handler writes of a message; "" if nothing."""
    (handler,) = handlers
    line = logging.makeLogRecord({"name": name, "levelno": level, "levelname": "WARNING", "msg": "a message"} | extra)
    return handler.format(line) if handler.filter(line) else ""


def test_a_terminal_has_stages_and_warnings_only(terminal: list[logging.Handler]) -> None:
    log_to_stderr()
    assert shown(terminal, "loragate.engine", logging.INFO, **STAGE) == "==> a message"
    assert shown(terminal, "loragate.engine", logging.INFO) == ""
    assert shown(terminal, "loragate.engine", logging.WARNING) == "warning: a message"
    assert shown(terminal, "loragate.access", logging.INFO).endswith("a message")


def test_a_terminal_has_the_whole_log_on_request(terminal: list[logging.Handler]) -> None:
    log_to_stderr("text")
    assert shown(terminal, "loragate.engine", logging.INFO).endswith("WARNING loragate.engine: a message")
