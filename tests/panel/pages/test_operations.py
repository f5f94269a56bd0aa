"""Keys, tenants, limits, usage, the engine and the audit log."""

from collections.abc import Callable

from playwright.sync_api import Page, expect
from running_server import until

from tests.gateway.engine_stats import full_stats
from tests.panel.world import WAIT_SECONDS, World


def test_a_key_is_created_shown_once_rotated_and_revoked(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/keys")
    page.get_by_role("button", name="New key").click()
    page.get_by_role("dialog").get_by_label("Name").fill("backend")
    page.get_by_role("button", name="Create", exact=True).click()
    secret = page.get_by_role("dialog").locator("code").inner_text()
    with world.api(secret) as api:
        assert api.get("/v1/models").is_success
    page.get_by_role("button", name="Done").click()
    row = page.get_by_role("row").filter(has_text="backend")
    expect(row).to_contain_text("active")
    page.reload()
    expect(row).to_be_visible()
    assert secret not in page.content()

    page.get_by_role("button", name="Rotate backend").click()
    page.get_by_role("button", name="Rotate", exact=True).click()
    second = page.get_by_role("dialog").locator("code").inner_text()
    page.get_by_role("button", name="Done").click()
    with world.api(second) as api:
        assert api.get("/v1/models").is_success
    expect(row.filter(has_text="expiring")).to_be_visible()

    fresh = row.filter(has_text="active")
    fresh.get_by_role("button", name="Revoke backend").click()
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.get_by_text("revoked", exact=True)).to_be_visible()
    with world.api(second) as api:
        assert api.get("/v1/models").status_code == 401


def test_a_key_without_the_scope_gets_a_message(signed_in: Callable[..., Page], world: World) -> None:
    with world.api(world.admin_key) as admin:
        body = {"name": "reader", "scopes": ["adapters:read"]}
        key = admin.post(f"/admin/v1/tenants/{world.tenant_id}/keys", json=body).json()["secret"]
    page = signed_in(key, "/keys")
    expect(page.get_by_text("No access")).to_be_visible()
    expect(page.get_by_role("link", name="Playground")).to_have_count(0)
    page.goto(f"{world.panel.url}/adapters")
    expect(page.get_by_role("button", name="Upload an adapter")).to_have_count(0)


def test_a_limit_applies_from_the_next_request_on(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(world.admin_key, f"/tenants/{world.other_tenant_id}")
    page.get_by_label("Requests per minute").fill("1")
    page.get_by_role("button", name="Save limits").click()
    expect(page.get_by_text("Saved. ").first).to_be_visible()
    body = {"model": "tiny/base-model", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    with world.api(world.other_key) as api:
        statuses = {api.post("/v1/chat/completions", json=body).status_code for _ in range(3)}
    assert 429 in statuses
    page.get_by_label("Requests per minute").fill("")
    page.get_by_role("button", name="Save limits").click()
    with world.api(world.admin_key) as admin:
        place = f"/admin/v1/tenants/{world.other_tenant_id}"
        until(lambda: admin.get(place).json()["limits"]["requests_per_minute"] is None, WAIT_SECONDS)


def test_a_tenant_is_created_and_deleted(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(world.admin_key, "/tenants")
    page.get_by_role("button", name="New tenant").click()
    page.get_by_role("dialog").get_by_label("Name").fill("initech")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("link", name="initech").click()
    expect(page.get_by_text("No keys yet")).to_be_visible()
    page.get_by_role("button", name="Delete initech").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("link", name="globex")).to_be_visible()
    expect(page.get_by_role("link", name="initech")).to_have_count(0)


def test_usage_is_shown_and_downloaded(signed_in: Callable[..., Page], world: World) -> None:
    body = {"model": "tiny/base-model", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    with world.api() as api:
        assert api.post("/v1/chat/completions", json=body).is_success
        until(lambda: bool(api.get("/v1/usage").json()["data"]), WAIT_SECONDS)
    page = signed_in(path="/usage")
    expect(page.get_by_role("img", name="Tokens by day")).to_be_visible()
    expect(page.get_by_role("cell", name="base model only")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    assert "prompt_tokens" in download.value.path().read_text()


def test_the_engine_and_the_audit_log(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(world.admin_key, "/engine")
    expect(page.get_by_text("tiny/base-model").first).to_be_visible()
    expect(page.get_by_role("heading", name="Slots")).to_be_visible()
    page.goto(f"{world.panel.url}/audit")
    page.get_by_label("Action").fill("tenant.update")
    expect(page.get_by_role("cell", name="tenant.update").first).to_be_visible()
    expect(page.get_by_role("cell", name="api_key.create")).to_have_count(0)


def test_several_engines_are_listed_and_shown_one_by_one(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(world.admin_key, "/engine")
    expect(page.get_by_role("heading", name="Slots")).to_be_visible()
    engines = page.get_by_role("region", name="Engines")
    expect(engines).to_have_count(0)
    world.gateway.register("gpu-2", "127.0.0.1:9")
    expect(engines.get_by_role("row")).to_have_count(3)
    expect(engines.get_by_role("row").filter(has_text="engine-0")).to_contain_text("ready")
    expect(engines.get_by_role("row").filter(has_text="127.0.0.1:9")).to_contain_text("unreachable")
    engines.get_by_role("link", name="gpu-2").click()
    expect(page.get_by_text("The engine is not responding")).to_be_visible()
    expect(page.get_by_role("link", name="Download a trace")).to_have_attribute(
        "href", "/transfer/trace.json?engine=gpu-2"
    )
    world.gateway.unregister("gpu-2")
    expect(engines).to_have_count(0)
    expect(page.get_by_role("heading", name="Slots")).to_be_visible()


def test_waiting_requests_are_shown_by_tenant(signed_in: Callable[..., Page], world: World) -> None:
    stats = full_stats()
    stats.tenants.add(tenant_id=world.other_tenant_id, running=1, waiting=14)
    stats.tenants.add(tenant_id=world.tenant_id, running=9, waiting=3)
    for number in range(20):
        stats.tenants.add(tenant_id=f"tn_gone{number}", running=1)
    world.gateway.engine.stats = stats
    page = signed_in(world.admin_key, "/engine")
    queues = page.get_by_role("list", name="Queue by tenant").get_by_role("listitem")
    expect(queues).to_have_count(20)
    expect(queues.nth(0)).to_contain_text("globex")
    expect(queues.nth(0)).to_contain_text("1 running, 14 waiting")
    expect(queues.nth(1)).to_contain_text("acme")
    expect(page.get_by_text("2 more tenants: 2 running, 0 waiting")).to_be_visible()
    world.gateway.engine.stats = full_stats()
    expect(page.get_by_text("There are no requests at the moment.")).to_be_visible()


def test_a_tenant_sees_its_service_quality(signed_in: Callable[..., Page], world: World) -> None:
    body = {"model": "tiny/base-model", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    with world.api(world.admin_key) as admin, world.api() as api:
        assert api.post("/v1/chat/completions", json=body).is_success
        place = f"/admin/v1/tenants/{world.tenant_id}"
        assert admin.patch(place, json={"limits": {"requests_per_minute": 0}}).is_success
        while api.post("/v1/chat/completions", json=body).is_success:
            pass
        assert admin.patch(place, json={"limits": {"requests_per_minute": None}}).is_success
    page = signed_in()
    expect(page.get_by_text("1 rate limited, 0 overloaded")).to_be_visible()
    expect(page.get_by_text("95 % within")).to_be_visible()


def test_a_key_gets_its_own_limits(signed_in: Callable[..., Page], world: World) -> None:
    with world.api(world.admin_key) as admin:
        made = admin.post(f"/admin/v1/tenants/{world.tenant_id}/keys", json={"name": "narrow"}).json()
    page = signed_in(path="/keys")
    page.get_by_role("button", name="Limits of narrow").click()
    page.get_by_role("dialog").get_by_label("Tokens per day").fill("500")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved. ")).to_be_visible()
    with world.api(world.admin_key) as admin:
        limits = admin.get(f"/admin/v1/keys/{made['id']}").json()["limits"]
    assert {name: value for name, value in limits.items() if value is not None} == {"tokens_per_day": 500}
