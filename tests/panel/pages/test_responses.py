"""The page of stored responses: without their contents."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.panel.world import World

SECRET = "the treasure is under the oak"


def test_a_response_is_listed_and_deleted(signed_in: Callable[..., Page], world: World) -> None:
    with world.api() as api:
        body = {"model": "tiny/base-model", "input": SECRET, "max_output_tokens": 4, "store": True}
        response = api.post("/v1/responses", json=body).json()["id"]
    page = signed_in(path="/responses")
    expect(page.get_by_text(response)).to_be_visible()
    assert "treasure" not in page.content()
    page.get_by_role("button", name=f"Delete {response}").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text(response)).to_have_count(0)
    with world.api() as api:
        assert api.get(f"/v1/responses/{response}").status_code == 404
