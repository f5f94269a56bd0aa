"""A page's connection, used by a client that knows the page's id."""

import re

import httpx

from tests.panel.page_socket import open_page, sign_in, socket_query
from tests.panel.world import World


def _connected(browser: httpx.Client, page_id: str) -> str:
    """Return the response to a handshake for this page."""
    url = socket_query(page_id, "polling")
    opened = browser.get(url).text
    sid = re.search(r'"sid":"([^"]+)"', opened)
    assert sid is not None, opened
    assert browser.post(f"{url}&sid={sid[1]}", content="40").is_success
    return browser.get(f"{url}&sid={sid[1]}").text


def test_a_page_accepts_its_own_session_only(world: World) -> None:
    with world.panel.visitor() as acme, world.panel.visitor() as globex, world.panel.visitor() as signed_out:
        sign_in(acme, world.key)
        sign_in(globex, world.other_key)
        page_id = open_page(acme)
        for visitor in (globex, signed_out):
            assert "Implicit handshake failed" in _connected(visitor, page_id)
        assert _connected(acme, page_id).startswith("40")
