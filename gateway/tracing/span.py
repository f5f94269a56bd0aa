"""What all our spans have in common: names of ours, ids and numbers. What a client wrote is not in them, nor an error's
message, which may quote it."""

import time

from opentelemetry.trace import Span, Status, StatusCode


def failed(span: Span, reason: str) -> None:
    """`reason` is a name of ours."""
    span.set_attribute("error.type", reason)
    span.set_status(Status(StatusCode.ERROR))


def now() -> int:
    """As spans count: nanoseconds of Unix time."""
    return time.time_ns()
