"""A client of the HTTP API for one key, and the errors that it raises.

ApiError
├── SignedOut        the key is no longer valid
└── Unreachable      the gateway does not respond
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx

from loragate.gateway.connections.tls import ANY_VALID, ClientTls

_TIMEOUT = httpx.Timeout(20.0, connect=3.0)
_GENERATION = httpx.Timeout(None, connect=3.0)

Json = dict[str, Any]


class ApiError(Exception):
    """An error with the API's message, written for people. `param` names the field that caused it."""

    def __init__(self, message: str, status: int = 0, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param


class SignedOut(ApiError):
    """The key is no longer valid, so the session has ended."""


class Unreachable(ApiError):
    """The gateway does not respond, perhaps only for a moment."""


def path(*parts: str | int) -> str:
    """Join and quote the parts of a path, which may be names that users chose."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


class Api:
    """Calls the API with one key, which it never exposes. Every method raises ApiError for an error response."""

    def __init__(self, base_url: str, key: str, tls: ClientTls = ANY_VALID) -> None:
        """Create a client. `tls` is what a gateway with TLS must show, and is shown."""
        self.base_url = base_url
        self._tls = tls
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers={"authorization": f"Bearer {key}"},
            timeout=_TIMEOUT,
            trust_env=False,
            verify=tls.context(),
            event_hooks={"request": [self._accept_new_certificate]},
        )

    async def close(self) -> None:
        """Close the connections. No request can be sent afterwards."""
        await self._http.aclose()

    async def get(self, url: str, **params: Any) -> Json:
        """Send a GET request. Parameters that are None are left out."""
        return await self._call("GET", url, params={name: value for name, value in params.items() if value is not None})

    async def get_without_timeout(self, url: str) -> Json:
        """Send a GET request whose response may take long, as when an engine has to fetch an adapter first."""
        return await self._call("GET", url, timeout=_GENERATION)

    async def post(self, url: str, body: Any = None) -> Json:
        return await self._call("POST", url, json=body)

    async def put(self, url: str, body: Any) -> Json:
        return await self._call("PUT", url, json=body)

    async def patch(self, url: str, body: Any) -> Json:
        return await self._call("PATCH", url, json=body)

    async def delete(self, url: str) -> Json:
        return await self._call("DELETE", url)

    async def text(self, url: str) -> str:
        """Return the text of a response that is not JSON."""
        return (await self._response("GET", url)).text

    async def readiness(self) -> Json:
        """Return the document of `/readyz`, whether the server is ready or not."""
        try:
            return _document(await self._http.get("/readyz"))
        except httpx.HTTPError as error:
            raise _unreachable() from error

    async def list_all(self, url: str, *, max_rows: int = 1000, **params: Any) -> list[Json]:
        """Return all pages of a list, up to `max_rows` rows."""
        rows: list[Json] = []
        after: str | None = None
        while len(rows) < max_rows:
            page = await self.get(url, after=after, limit=100, **params)
            rows += page["data"]
            if not page["has_more"]:
                break
            after = page["last_id"]
        return rows[:max_rows]

    async def stream(self, url: str, body: Json) -> AsyncIterator[Json]:
        """Yield the events of a streamed response. An error event is raised as ApiError."""
        async with self._open_stream("POST", url, content=json.dumps(body), timeout=_GENERATION) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:") or data == "[DONE]":
                    continue
                event: Json = json.loads(data)
                if "error" in event:
                    raise _error_from(response.status_code, event)
                yield event

    @asynccontextmanager
    async def proxied(
        self, method: str, url: str, content: AsyncIterator[bytes] | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Stream a body to the API and yield its streamed response, of any status."""
        try:
            async with self._http.stream(
                method, url, content=content, headers=dict(headers), timeout=_GENERATION
            ) as response:
                yield response
        except httpx.HTTPError as error:
            raise _unreachable() from error

    @asynccontextmanager
    async def _open_stream(self, method: str, url: str, **request: Any) -> AsyncIterator[httpx.Response]:
        try:
            headers = {"content-type": "application/json"}
            async with self._http.stream(method, url, headers=headers, **request) as response:
                if not response.is_success:
                    await response.aread()
                    raise _error_from(response.status_code, _document(response))
                yield response
        except httpx.HTTPError as error:
            raise _unreachable() from error

    async def _accept_new_certificate(self, _: httpx.Request) -> None:
        self._tls.context()

    async def _call(self, method: str, url: str, **request: Any) -> Json:
        return _document(await self._response(method, url, **request))

    async def _response(self, method: str, url: str, **request: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, url, **request)
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: the session was closed meanwhile
            raise _unreachable() from error
        if not response.is_success:
            raise _error_from(response.status_code, _document(response))
        return response


def _unreachable() -> Unreachable:
    return Unreachable("The gateway is not responding at the moment.", 503, "unreachable")


def _document(response: httpx.Response) -> Json:
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _error_from(status: int, document: Json) -> ApiError:
    error = document.get("error")
    if not isinstance(error, dict):
        return ApiError(f"The gateway responded with status {status}.", status)
    kind = SignedOut if status == httpx.codes.UNAUTHORIZED else ApiError
    return kind(str(error.get("message")), status, error.get("code"), error.get("param"))
