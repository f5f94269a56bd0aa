"""Signing in, and being signed out."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.panel.world import World


def test_a_bad_key_is_rejected_with_the_reason(page: Page, world: World) -> None:
    page.goto(f"{world.panel.url}/adapters")
    expect(page).to_have_url(f"{world.panel.url}/sign-in?next=%2Fadapters")
    page.get_by_label("Your key").fill("lg-never-issued")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("This key is not valid.")).to_be_visible()
    page.get_by_label("Your key").fill(world.key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Adapters", exact=True)).to_be_visible()
    expect(page).to_have_url(f"{world.panel.url}/adapters")


def test_the_key_stays_on_the_server(page: Page, context: BrowserContext, world: World) -> None:
    page.goto(world.panel.url)
    page.get_by_label("Your key").fill(world.key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    (cookie,) = [each for each in context.cookies() if each["name"].startswith("loragate-panel-")]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    kept = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
    for secret in (world.key, world.key.rpartition("-")[2]):
        assert secret not in cookie["value"]
        assert secret not in kept
        assert secret not in page.content()
        assert not [file for file in _files(world.panel.folder) if secret in file.read_text(errors="replace")]
    assert cookie["value"] not in page.content()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_signing_out_ends_the_session(signed_in: Callable[..., Page], context: BrowserContext, world: World) -> None:
    page = signed_in(fresh_cookie=True)
    (cookie,) = [each for each in context.cookies() if each["name"].startswith("loragate-panel-")]
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You have signed out.")).to_be_visible()
    with world.panel.visitor(cookies={cookie["name"]: cookie["value"]}) as again:
        assert again.get("/").headers["location"] == "/sign-in?ended=over"


def test_every_sign_in_has_its_own_id(world: World) -> None:
    cookies = []
    headers = {"origin": world.panel.url}
    with world.panel.visitor(headers=headers) as browser:
        for _ in range(2):
            answer = browser.post("/sign-in", data={"key": world.key, "next": "//elsewhere.example"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            cookies.append(answer.headers["set-cookie"].partition(";")[0])
        assert cookies[0] != cookies[1]
    with world.panel.visitor(headers={"cookie": cookies[0]}) as browser:
        assert browser.get("/").status_code == 303, "the session before it is over"


def test_other_sites_cannot_open_a_session(
    signed_in: Callable[..., Page], context: BrowserContext, world: World
) -> None:
    signed_in(fresh_cookie=True)
    cookies = {each["name"]: each["value"] for each in context.cookies()}
    with world.panel.visitor(cookies=cookies) as browser:
        for origin in ({}, {"origin": "https://elsewhere.example"}, {"origin": "null"}):
            for path in ("/sign-in", "/sign-out", "/transfer/adapters"):
                assert browser.post(path, headers=origin).status_code == 403
        socket = "/_nicegui_ws/socket.io/?EIO=4&transport=polling&client_id=x"
        assert browser.get(socket, headers={"origin": "https://elsewhere.example"}).status_code == 400
        assert browser.get("/", headers={"x-forwarded-prefix": "/<script>"}).text.count("&lt;script") == 0


def test_nothing_is_shown_without_a_session(world: World) -> None:
    with world.panel.visitor() as browser:
        for path in ("/", "/adapters", "/keys", "/transfer/usage.csv", "/_nicegui/client/x/upload/1", "/openapi.json"):
            answer = browser.get(path)
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/sign-in")
        forged = {"cookie": f"loragate-panel-00000000={'x' * 43}.{'0' * 64}"}
        assert browser.get("/", headers=forged).status_code == 303


def test_pages_load_nothing_from_other_hosts(world: World) -> None:
    with world.panel.visitor() as browser:
        headers = browser.get("/sign-in").headers
    policy = headers["content-security-policy"]
    assert "http" not in policy
    assert "script-src 'self' 'nonce-" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_a_revoked_key_ends_the_session(signed_in: Callable[..., Page], world: World) -> None:
    with world.api(world.admin_key) as admin:
        made = admin.post(f"/admin/v1/tenants/{world.tenant_id}/keys", json={"name": "short"}).json()
        page = signed_in(made["secret"], "/adapters")
        assert admin.delete(f"/admin/v1/keys/{made['id']}").is_success
    expect(page.get_by_text("This key is no longer valid. Sign in with another one.")).to_be_visible()


def test_failures_of_others_lock_out_no_user(world: World) -> None:
    """All of this world has one address, as behind a proxy. Guesses wait, the right key does not."""

    def guess(number: int) -> int:
        with world.panel.visitor(headers={"origin": world.panel.url}) as stranger:
            return stranger.post("/sign-in", data={"key": f"lg-guess-{number}"}).status_code

    with ThreadPoolExecutor(30) as guessing:
        guesses = [guessing.submit(guess, number) for number in range(30)]
        with world.panel.visitor(headers={"origin": world.panel.url}) as browser:
            for _ in range(5):
                assert browser.post("/sign-in", data={"key": world.key}).status_code == 303
        assert {each.result() for each in guesses} == {401}


@pytest.mark.long
def test_a_restart_requires_a_new_sign_in(signed_in: Callable[..., Page], world: World) -> None:
    world.panel.restart()  # which also discards the attempts
    page = signed_in(fresh_cookie=True)
    world.panel.restart()
    expect(page.get_by_text("Your session has ended. Sign in again to continue.")).to_be_visible()
