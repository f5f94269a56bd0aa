"""The body of a request as bytes, as a dependency of its route."""

from starlette.requests import Request

from loragate.gateway.dependencies.json_body import received

JSON = "application/json"
PROTOBUF = "application/x-protobuf"


class RawBody:
    """A dependency that reads the body, of this media type, after the caller was authenticated."""

    def __init__(self, media: str = JSON) -> None:
        self.media = media

    async def __call__(self, request: Request) -> bytes:
        async with received(request, self.media) as body:
            return bytes(body)
