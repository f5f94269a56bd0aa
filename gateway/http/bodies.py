"""Request bodies: bounded while they are read, checked before anything works on them."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from loragate.gateway.errors import UnsupportedMediaType
from loragate.gateway.http.body_limits import Intake, Pace


async def chunks(request: Request, limit: int, pace: Pace) -> AsyncIterator[bytes]:
    """The body piece by piece. Raises PayloadTooLarge beyond `limit` bytes, RequestTimeout when it is too slow."""
    intake = Intake(limit, pace)
    intake.announce(announced(request))
    more = True
    while more:
        try:
            async with asyncio.timeout(intake.patience):
                message = await request.receive()
        except TimeoutError:
            raise intake.stalled() from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        intake.take(len(chunk))
        yield chunk


def announced(request: Request) -> int:
    """How long it says that its body is; 0 where it does not say."""
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else 0


def check_encoding(request: Request) -> None:
    """Refuse compressed bodies: they would be bounded only after they had grown."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("Compressed bodies are not accepted.", param="content-encoding")
