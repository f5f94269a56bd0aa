"""Training runs: what a tenant sees of them, and what the operator does with them."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.panel.world import World


def test_a_run_is_watched_paused_and_ended(signed_in: Callable[..., Page], world: World) -> None:
    run = world.gateway.training_run(world.tenant_id)
    page = signed_in(path="/training")
    expect(page.get_by_text("running", exact=True)).to_be_visible()
    page.get_by_role("button", name=f"Losses of {run}").click()
    dialog = page.get_by_role("dialog", name="Losses")
    expect(dialog.get_by_role("img", name="Loss by request")).to_be_visible()
    expect(dialog.get_by_text("Last: 0.")).to_be_visible()
    page = signed_in(world.admin_key, path="/training")
    page.get_by_role("button", name=f"Pause {run}").click()
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    page.get_by_role("button", name=f"End {run}").click()
    page.get_by_role("button", name="End the run").click()
    expect(page.get_by_text("ended", exact=True)).to_be_visible()
    with world.api() as api:
        assert api.get(f"/v1/training_runs/{run}").json()["status"] == "ended"
