"""The format of log lines, and what they leave out.

An exception's message may quote a prompt, a key or an adapter. A line therefore has only the type and the traceback of
an exception, and for errors of the operating system also its description.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal

LogFormat = Literal["auto", "text", "json"]

STAGE = {"stage": True}  # the `extra` of what a person at a terminal sees while the server starts
_ACCESS = "loragate.access"

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class Fields(dict[str, Any]):
    """A message that consists of named values: a JSON object, in either format."""

    def __str__(self) -> str:
        return json.dumps(self)


class _Lines(logging.Formatter):
    def formatException(self, ei: _ExcInfo) -> str:
        return exception_text(ei[1])


class TextLines(_Lines):
    """Lines of time, level, logger and message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


class TerminalLines(_Lines):
    """Lines for a person: `==> ` and a stage, or a level and a message."""

    def format(self, record: logging.LogRecord) -> str:
        beginning = "==> " if hasattr(record, "stage") else f"{record.levelname.lower()}: "
        return beginning + super().format(record)


def is_on_terminal(record: logging.LogRecord) -> bool:
    """Return whether TerminalLines has this record: stages, warnings, and requests where the access log is on."""
    return record.levelno >= logging.WARNING or hasattr(record, "stage") or record.name == _ACCESS


def for_terminal(form: LogFormat) -> bool:
    """Return whether a person at a terminal reads what is logged."""
    return form == "auto" and sys.stderr.isatty()


class JsonLines(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `message` or the message's own fields, and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        line |= record.msg if isinstance(record.msg, Fields) else {"message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = exception_text(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr(form: LogFormat = "auto") -> None:
    """Log one line per event, and on a terminal only those for a person; libraries log from warnings on, and gRPC's
    core, in its own format, only errors."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    handler = logging.StreamHandler()
    if for_terminal(form):
        handler.setFormatter(TerminalLines())
        handler.addFilter(is_on_terminal)
    else:
        handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("loragate").setLevel(logging.INFO)
    # Fields that no line contains need not be collected.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def exception_text(error: BaseException | None) -> str:
    """Return the traceback with its causes first, as Python prints it, without the messages."""
    return "\n".join(_parts(error)) if error is not None else ""


def _parts(error: BaseException) -> Iterator[str]:
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if earlier is not None:
        yield from _parts(earlier)
        yield "which led to:"
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _parts(each)
        yield "together:"
    yield "Traceback (most recent call last):\n" + "".join(traceback.format_tb(error.__traceback__)) + _named(error)


def _named(error: BaseException) -> str:
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return f"{name}: {error.strerror}" if isinstance(error, OSError) and error.strerror else name
