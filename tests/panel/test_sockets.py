"""A page's connection, used by a client that knows the page's id."""

import re
from contextlib import closing

import httpx

from tests.panel.world import World


def _signed_in(world: World, key: str) -> httpx.Client:
    browser = world.panel.visitor(headers={"origin": world.panel.url})
    assert browser.post("/sign-in", data={"key": key}).status_code == 303
    return browser


def _connected(browser: httpx.Client, client_id: str) -> str:
    """Return the response to a handshake for this page."""
    query = f"EIO=4&transport=polling&client_id={client_id}&tab_id=t&document_id=d&next_message_id=0"
    url = f"/_nicegui_ws/socket.io/?{query}&implicit_handshake=true"
    opened = browser.get(url).text
    sid = re.search(r'"sid":"([^"]+)"', opened)
    assert sid is not None, opened
    assert browser.post(f"{url}&sid={sid[1]}", content="40").is_success
    return browser.get(f"{url}&sid={sid[1]}").text


def test_a_page_accepts_its_own_session_only(world: World) -> None:
    with closing(_signed_in(world, world.key)) as acme, closing(_signed_in(world, world.other_key)) as globex:
        page = acme.get("/").text
        found = re.search(r"'client_id': '([0-9a-f-]{36})'", page)
        assert found is not None
        with world.panel.visitor() as signed_out:
            for visitor in (globex, signed_out):
                assert "Implicit handshake failed" in _connected(visitor, found[1])
        assert _connected(acme, found[1]).startswith("40")
