"""The HTTP API, as one key sees it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx

from loragate.panel.failure import Failure, SignedOut, Unreachable

_TIMEOUT = httpx.Timeout(20.0, connect=3.0)
_GENERATION = httpx.Timeout(None, connect=3.0)

Json = dict[str, Any]


def path(*parts: str | int) -> str:
    """A path whose parts are names that people chose."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


class Api:
    """Raises Failure, in the API's words, for whatever is no good answer. Knows the key; shows it to nobody."""

    def __init__(self, base_url: str, key: str) -> None:
        self.base_url = base_url
        self._http = httpx.AsyncClient(
            base_url=base_url, headers={"authorization": f"Bearer {key}"}, timeout=_TIMEOUT, trust_env=False
        )

    async def close(self) -> None:
        """Afterwards nothing can be asked."""
        await self._http.aclose()

    async def get(self, url: str, **params: Any) -> Json:
        """Parameters that are None are left out."""
        return await self._ask("GET", url, params={name: value for name, value in params.items() if value is not None})

    async def post(self, url: str, body: Any = None) -> Json:
        return await self._ask("POST", url, json=body)

    async def put(self, url: str, body: Any) -> Json:
        return await self._ask("PUT", url, json=body)

    async def patch(self, url: str, body: Any) -> Json:
        return await self._ask("PATCH", url, json=body)

    async def delete(self, url: str) -> Json:
        return await self._ask("DELETE", url)

    async def text(self, url: str) -> str:
        """An answer that is no JSON."""
        return (await self._answer("GET", url)).text

    async def readiness(self) -> Json:
        """What `/readyz` says, ready or not."""
        try:
            return _document(await self._http.get("/readyz"))
        except httpx.HTTPError as error:
            raise _unreachable() from error

    async def everything(self, url: str, *, most: int = 1000, **params: Any) -> list[Json]:
        """All pages of a list, up to `most` rows."""
        rows: list[Json] = []
        after: str | None = None
        while len(rows) < most:
            page = await self.get(url, after=after, limit=100, **params)
            rows += page["data"]
            if not page["has_more"]:
                break
            after = page["last_id"]
        return rows[:most]

    async def stream(self, url: str, body: Json) -> AsyncIterator[Json]:
        """The events of a streamed answer; an error among them is raised."""
        async with self._opened("POST", url, content=json.dumps(body), timeout=_GENERATION) as answer:
            async for line in answer.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:") or data == "[DONE]":
                    continue
                event: Json = json.loads(data)
                if "error" in event:
                    raise _failure(answer.status_code, event)
                yield event

    @asynccontextmanager
    async def passed_on(
        self, method: str, url: str, content: AsyncIterator[bytes] | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """An answer as it comes, good or not, to a body as it comes."""
        try:
            async with self._http.stream(
                method, url, content=content, headers=dict(headers), timeout=_GENERATION
            ) as answer:
                yield answer
        except httpx.HTTPError as error:
            raise _unreachable() from error

    @asynccontextmanager
    async def _opened(self, method: str, url: str, **request: Any) -> AsyncIterator[httpx.Response]:
        try:
            headers = {"content-type": "application/json"}
            async with self._http.stream(method, url, headers=headers, **request) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise _failure(answer.status_code, _document(answer))
                yield answer
        except httpx.HTTPError as error:
            raise _unreachable() from error

    async def _ask(self, method: str, url: str, **request: Any) -> Json:
        return _document(await self._answer(method, url, **request))

    async def _answer(self, method: str, url: str, **request: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, url, **request)
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: the session was closed meanwhile
            raise _unreachable() from error
        if not answer.is_success:
            raise _failure(answer.status_code, _document(answer))
        return answer


def _unreachable() -> Unreachable:
    return Unreachable("The gateway does not answer at the moment.", 503, "unreachable")


def _document(answer: httpx.Response) -> Json:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _failure(status: int, document: Json) -> Failure:
    error = document.get("error")
    if not isinstance(error, dict):
        return Failure(f"The gateway answered {status}.", status)
    kind = SignedOut if status == httpx.codes.UNAUTHORIZED else Failure
    return kind(str(error.get("message")), status, error.get("code"), error.get("param"))
