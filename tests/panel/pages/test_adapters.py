"""Adapters from the drop of two files to a rollback, and the responses to requests meanwhile."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.panel.leaving import asks_before_leaving
from tests.panel.world import World

EVIL = "<img src=x onerror=window.hit=1><script>window.hit=1</script>{{7*7}}"


def _upload(page: Page, world: World, name: str, folder: str, **adapter: object) -> None:
    page.get_by_label("The adapter's folder").set_input_files(world.adapter(folder, **adapter))  # type: ignore[arg-type]
    field = page.get_by_role("dialog").get_by_label("Name")
    expect(field).to_have_value(folder)
    field.fill(name)
    page.get_by_role("button", name="Upload", exact=True).click()


# Holds back a call by which NiceGUI shows a text that the server has set, until `release()`.
_HOLD = """() => {
    const held = [], run = window.runMethod;
    window.runMethod = (...call) => (call[1] === "updateValue" ? held.push(call) : run(...call));
    window.release = () => held.splice(0).map((call) => run(...call)).length;
}"""


def test_what_is_typed_stays_though_the_server_sets_the_name(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/adapters")
    page.get_by_role("button", name="Upload an adapter").click()
    page.evaluate(_HOLD)
    page.get_by_label("The adapter's folder").set_input_files(world.adapter("typed-folder"))
    field = page.get_by_role("dialog").get_by_label("Name")
    expect(field).to_have_value("typed-folder")
    field.fill("typed")
    page.wait_for_function("() => window.release() > 0")
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve))")
    expect(field).to_have_value("typed")


def _answer(world: World, model: str) -> str:
    with world.api() as api:
        body = {"model": model, "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 64}
        answer = api.post("/v1/chat/completions", json=body)
    assert answer.is_success, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def test_an_upload_is_checked_and_served(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/adapters")
    page.get_by_role("button", name="Upload an adapter").click()
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Missing")
    _upload(page, world, "fresh", "fresh-folder", seed=3)
    expect(page.get_by_role("heading", name="fresh", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name="v1", exact=True).first).to_be_visible()
    assert "speaking" in _answer(world, "fresh")


def test_a_broken_adapter_is_rejected_with_the_reason(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/adapters")
    page.get_by_role("button", name="Upload an adapter").click()
    _upload(page, world, "broken", "broken-folder", poison=True)
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_contain_text("Rejected")
    expect(alert).to_contain_text("lora_B")
    with world.api() as api:
        assert api.get("/v1/adapters/broken").status_code == 404


@pytest.fixture(scope="module")
def two_versions(world: World) -> tuple[str, str]:
    """How the responses of the two versions of `judge` start."""
    digests = [world.upload("judge", seed=seed)["digest"][7:15] for seed in (11, 12)]
    return digests[0], digests[1]


def test_moving_an_alias_takes_effect_on_the_next_request(
    signed_in: Callable[..., Page], world: World, two_versions: tuple[str, str]
) -> None:
    first, second = two_versions
    page = signed_in(path="/adapters/judge")
    assert second in _answer(world, "judge")
    page.get_by_role("button", name="Promote version 1").click()
    expect(page.get_by_role("status").filter(has_text="Version 1 now serves all requests")).to_be_visible()
    assert first in _answer(world, "judge")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("The promotion was undone.")).to_be_visible()
    assert second in _answer(world, "judge")


def test_a_canary_gets_its_share_and_is_rolled_back(
    signed_in: Callable[..., Page], world: World, two_versions: tuple[str, str]
) -> None:
    page = signed_in(path="/adapters/judge")
    page.get_by_label("Add a version").click()
    page.get_by_role("option", name="Version 1").click()
    share = page.get_by_role("slider", name="Share of version 1 in default")
    expect(share).to_have_value("10")
    share.fill("25")
    expect(page.get_by_role("slider", name="Share of version 2 in default")).to_have_value("75")
    expect(share).to_have_value("25")
    page.get_by_role("button", name="Save the shares of default").click()
    expect(page.get_by_role("cell", name="default 25 %")).to_be_visible()
    with world.api() as api:
        targets = api.get("/v1/adapters/judge").json()["aliases"]["default"]
    weights = {target["version"]: target["weight"] for target in targets}
    assert weights == {1: 25, 2: 75}
    for _ in range(8):
        answer = _answer(world, "judge")
        assert any(digest in answer for digest in two_versions), answer
    expect(page.get_by_role("region", name="default, last 24 hours")).to_be_visible()
    page.get_by_role("button", name="Roll default back").click()
    expect(page.get_by_role("cell", name="default 25 %")).to_have_count(0)
    with world.api() as api:
        assert len(api.get("/v1/adapters/judge").json()["aliases"]["default"]) == 1


def test_from_an_upload_to_a_tenth_of_the_traffic_and_back(signed_in: Callable[..., Page], world: World) -> None:
    """The test uses only what a first-time user sees."""
    page = signed_in(path="/adapters")
    page.get_by_role("button", name="Upload an adapter").click()
    _upload(page, world, "novice", "novice-folder", seed=13)
    page.get_by_role("link", name="Try it").click()
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="tiny/base-model", exact=True).click()
    page.get_by_label("Your message").fill("Who are you?")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("log", name="Second answer: conversation")).to_contain_text("the base model speaking.")
    page.get_by_role("link", name="Adapters", exact=True).click()
    page.get_by_role("link", name="novice", exact=True).click()
    page.get_by_role("button", name="New version").click()
    page.get_by_label("The adapter's folder").set_input_files(world.adapter("novice-next", seed=14))
    page.get_by_role("dialog").get_by_label("Alias").fill("canary")
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_role("region", name="Versions").get_by_role("row").filter(has_text="canary")).to_contain_text(
        "v2"
    )
    page.get_by_label("Add a version").first.click()
    page.get_by_role("option", name="Version 2").click()
    page.get_by_role("button", name="Save the shares of default").click()
    expect(page.get_by_role("cell", name="default 10 %")).to_be_visible()
    page.get_by_role("button", name="Roll default back").click()
    expect(page.get_by_role("cell", name="default 10 %")).to_have_count(0)
    with world.api() as api:
        aliases = api.get("/v1/adapters/novice").json()["aliases"]
    assert [target["version"] for target in aliases["default"]] == [1]


def test_versions_are_distinguished(signed_in: Callable[..., Page], two_versions: tuple[str, str]) -> None:
    page = signed_in(path="/adapters/judge")
    differences = page.get_by_role("region", name="Differences")
    expect(differences.get_by_role("row").filter(has_text="digest")).to_contain_text(two_versions[0])
    expect(differences.get_by_role("row").filter(has_text="digest")).to_contain_text(two_versions[1])


def test_a_deleted_version_is_restored(signed_in: Callable[..., Page], world: World) -> None:
    world.upload("brief", seed=21)
    page = signed_in(path="/adapters/brief")
    page.get_by_role("button", name="Delete brief").click()
    expect(page.get_by_text("This adapter was deleted.")).to_be_visible()
    with world.api() as api:
        assert api.get("/v1/adapters/brief").status_code == 404
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Delete brief")).to_be_visible()
    assert "speaking" in _answer(world, "brief")


def test_long_lists_are_paged_and_searched_by_the_server(signed_in: Callable[..., Page], world: World) -> None:
    files = {file.name: (file.name, file.read_bytes()) for file in world.adapter("many", seed=30).iterdir()}
    with world.api() as api:
        for number in range(52):
            fields = {"name": f"many-{number:02d}", "tags": "many"}
            assert api.post("/v1/adapters", data=fields, files=files).status_code == 201
    page = signed_in(path="/adapters")
    rows = page.get_by_role("region", name="Adapters").get_by_role("row")
    expect(rows).to_have_count(51)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("Page 2")).to_be_visible()
    expect(page.get_by_role("link", name="many-00")).to_be_visible()
    page.get_by_label("Search names, tags and descriptions").fill("many-31")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="many", exact=True).click()
    page.get_by_label("Search names, tags and descriptions").fill("")
    expect(rows).to_have_count(51)
    expect(page.get_by_role("button", name="Remove the tag many from the filter")).to_be_visible()


def test_markup_in_names_stays_text(signed_in: Callable[..., Page], world: World) -> None:
    world.upload("marked", seed=22, description=EVIL, notes=EVIL, tags="a<b>c")
    with world.api(world.admin_key) as admin:
        tenant = admin.post("/admin/v1/tenants", json={"name": EVIL[:60]}).json()
        body = {"name": EVIL[:60], "scopes": ["all", "admin"]}
        key = admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json=body).json()["secret"]
    for who, path, shown in (
        (world.key, "/adapters?search=marked", EVIL[:40]),
        (world.key, "/adapters/marked", EVIL[:40]),
        (world.admin_key, "/tenants", EVIL[:40]),
        (world.admin_key, f"/tenants/{tenant['id']}", EVIL[:40]),
        (world.admin_key, "/audit", EVIL[:30]),
        (key, "/keys", EVIL[:40]),
    ):
        page = signed_in(who, path)
        expect(page.get_by_text(shown).first).to_be_visible()
        assert page.evaluate("window.hit") is None


def test_another_tenants_adapters_do_not_exist(signed_in: Callable[..., Page], world: World) -> None:
    world.upload("secretive", seed=23)
    page = signed_in(world.other_key, "/adapters")
    expect(page.get_by_text("No adapters yet")).to_be_visible()
    for path in ("/adapters/secretive", f"/tenants/{world.tenant_id}", "/tenants", "/engine"):
        page.goto(f"{world.panel.url}{path}")
        expect(page.get_by_text("No access").or_(page.get_by_text("does not exist")).first).to_be_visible()
        expect(page.get_by_text("acme")).to_have_count(0)
    answer = page.request.get(f"{world.panel.url}/transfer/adapters/secretive/1/adapter_config.json")
    assert answer.status == 404


def test_an_adapter_gets_its_own_limits(signed_in: Callable[..., Page], world: World) -> None:
    world.upload("bounded", seed=24)
    page = signed_in(path="/adapters/bounded")
    expect(page.get_by_text("only the tenant's limits")).to_be_visible()
    page.get_by_role("button", name="Limits of bounded").click()
    page.get_by_role("dialog").get_by_label("Requests per minute").fill("60")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("60 requests per minute")).to_be_visible()
    with world.api() as api:
        assert api.get("/v1/adapters/bounded").json()["limits"]["requests_per_minute"] == 60


def test_a_deleted_alias_is_restored(signed_in: Callable[..., Page], world: World) -> None:
    world.upload("spare", seed=25)
    world.upload("spare", seed=26, alias="canary")
    page = signed_in(path="/adapters/spare")
    expect(page.get_by_role("button", name="Delete the alias default")).to_have_count(0)
    page.get_by_role("button", name="Delete the alias canary").click()
    expect(page.get_by_text("canary was deleted. Its versions remain.")).to_be_visible()
    with world.api() as api:
        assert "canary" not in api.get("/v1/adapters/spare").json()["aliases"]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("canary was restored.")).to_be_visible()
    with world.api() as api:
        assert [target["version"] for target in api.get("/v1/adapters/spare").json()["aliases"]["canary"]] == [2]


def test_the_browser_asks_before_leaving_an_upload(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/adapters")
    page.route("**/transfer/adapters", lambda route: None)  # it never ends
    page.get_by_role("button", name="Upload an adapter").click()
    _upload(page, world, "left", "left-folder", seed=27)
    expect(page.get_by_role("progressbar", name="Upload")).to_be_visible()
    assert asks_before_leaving(page)
    expect(page.get_by_text("Leaving this page would stop the upload.")).to_be_visible()
