"""HTTP calls whose failures are sentences."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from loragate.cli.refusal import Refusal

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 300.0  # a long completion, or the check of a large upload
_PAGE = 100


class Broken(Refusal):
    """The server was not reached, or its answer was not: whether it did what was asked is open."""


class NotThere(Refusal):
    """The server has no such thing, or none for this caller."""


class Api:
    """One server as one caller sees it. Every method raises Refusal with the server's words and request id."""

    def __init__(self, base_url: str, key: str) -> None:
        self._base_url = base_url
        self._client = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
        )

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, method: str, path: str, **request: Any) -> Any:
        """The JSON that the server answers with; None for an empty answer."""
        with self.stream(method, path, **request) as answer:
            content = answer.read()
            return answer.json() if content else None

    def every(self, path: str, **filters: str | None) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page; a filter that is None is left out."""
        given = {name: value for name, value in filters.items() if value is not None}
        after: str | None = None
        while True:
            page = self.call("GET", path, params={"limit": _PAGE, **given, **({"after": after} if after else {})})
            yield from page["data"]
            after = page.get("last_id")
            if not page.get("has_more") or after is None:
                return

    @contextmanager
    def stream(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        """An answer whose body is read as it comes."""
        try:
            with self._client.stream(method, path, **request) as answer:
                if answer.is_error:
                    answer.read()
                    raise (NotThere if answer.status_code == httpx.codes.NOT_FOUND else Refusal)(error_in(answer))
                yield answer
        except httpx.ConnectError:
            raise Broken(
                f"nothing answers at {self._base_url}: start the server with `loragate serve`, or say where it is "
                "with --base-url or LORAGATE_BASE_URL"
            ) from None
        except httpx.TimeoutException:
            raise Broken(f"{self._base_url} has not answered in time") from None
        except httpx.TransportError as error:
            raise Broken(f"the connection to {self._base_url} broke: {error}") from None


def error_in(answer: httpx.Response) -> str:
    """What an answer with an error status says, in a sentence with the request's id."""
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = f"the server answered with status {answer.status_code}"
    request_id = answer.headers.get("x-request-id")
    return f"{message} (request {request_id})" if request_id else message
