"""Page regions that load by themselves: late responses, failures, and retries."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from loragate.panel.api import ApiError
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.elements.tag import tag

UNEXPECTED = "The gateway returned an unexpected response, which this page cannot show."


class Gateway:
    """Each request waits for its own response."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[str]] = []

    async def ask(self) -> str:
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]


def _shown(box: Element, role: str = "") -> list[str]:
    """Return the text on the page, or of elements with this role."""
    within = [each for each in box.descendants() if each.props.get("role") == role] if role else [box]
    return [each.text for part in within for each in part.descendants() if isinstance(each, TextElement) and each.text]


def _region(
    box: TextElement, gateway: Gateway, draw: Callable[[str], Any] = lambda words: tag("p", words)
) -> AsyncRegion[str]:
    with box:
        return AsyncRegion(gateway.ask, draw)


async def _asks(region: AsyncRegion[str], gateway: Gateway) -> asyncio.Task[None]:
    """Start a request, which is pending when this returns."""
    before = len(gateway.asked)
    loading = asyncio.create_task(region.load())
    while len(gateway.asked) == before:
        await asyncio.sleep(0)
    return loading


async def _answered(region: AsyncRegion[str], gateway: Gateway, answer: str | Exception) -> None:
    loading = await _asks(region, gateway)
    _answer(gateway.asked[-1], answer)
    await loading


def _answer(asked: "asyncio.Future[str]", answer: str | Exception) -> None:
    if isinstance(answer, Exception):
        asked.set_exception(answer)
    else:
        asked.set_result(answer)


@pytest.mark.parametrize("late", ["older", ApiError("older"), KeyError("older")], ids=["answer", "failure", "surprise"])
async def test_an_overtaken_response_is_discarded(box: TextElement, late: str | Exception) -> None:
    gateway = Gateway()
    region = _region(box, gateway)
    slow = await _asks(region, gateway)
    await _answered(region, gateway, "newer")
    _answer(gateway.asked[0], late)
    await slow
    assert _shown(box) == ["newer"]


async def test_an_unexpected_error_is_shown_and_can_be_retried(box: TextElement) -> None:
    gateway = Gateway()
    region = _region(box, gateway)
    await _answered(region, gateway, KeyError("data"))
    assert _shown(box) == _shown(box, "alert") == [UNEXPECTED, "Try again"]
    (again,) = [each for each in box.descendants() if each.tag == "button"]
    (listener,) = again._event_listeners.values()
    assert listener.handler is not None
    trying = asyncio.ensure_future(listener.handler())
    while len(gateway.asked) < 2:
        await asyncio.sleep(0)
    _answer(gateway.asked[1], "there")
    await trying
    assert _shown(box) == ["there"]


async def test_earlier_content_stays_next_to_a_failure(box: TextElement) -> None:
    gateway = Gateway()
    region = _region(box, gateway)
    await _answered(region, gateway, "there")
    for answer, words in ((ApiError("The gateway is away.", 503), "The gateway is away."), (KeyError("x"), UNEXPECTED)):
        await _answered(region, gateway, answer)
        assert _shown(box) == [words, "Try again", "there"]
    await _answered(region, gateway, "there")
    assert _shown(box) == ["there"]


async def test_a_drawing_error_is_a_failure_too(box: TextElement) -> None:
    gateway = Gateway()

    def draw(words: str) -> None:
        tag("p", f"{words}, so far")
        if words == "odd":
            raise KeyError("data")

    region = _region(box, gateway, draw)
    await _answered(region, gateway, "fine")
    await _answered(region, gateway, "odd")
    assert _shown(box) == [UNEXPECTED, "Try again", "fine, so far"]


async def test_it_polls_only_while_the_gateway_is_unavailable(box: TextElement) -> None:
    gateway = Gateway()
    region = _region(box, gateway)
    seen = []
    for answer in (ApiError("There is no such job.", 404), ApiError("The server does not respond.", 503), "there"):
        await _answered(region, gateway, answer)
        seen.append(region._timer.active)
    assert seen == [False, True, False]
