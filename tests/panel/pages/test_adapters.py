"""Adapters from the drop of two files to a rollback, and the responses to requests meanwhile."""

import tarfile
from collections.abc import Callable

import grpc
import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect
from safetensors.numpy import load, save

from tests.gateway.stub_engine import tar_of
from tests.panel.conftest import Cookie
from tests.panel.leaving import asks_before_leaving
from tests.panel.world import World

EVIL = "<img src=x onerror=window.hit=1><script>window.hit=1</script>{{7*7}}"
MERGED = {"lm_head.weight": np.arange(12, dtype=np.float32)}
MERGED_URL = "/transfer/merged/merger/1"


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


def test_a_merged_model_is_downloaded(signed_in: Callable[..., Page], exporters_key: str) -> None:
    page = signed_in(exporters_key, "/adapters/merger")
    page.get_by_role("button", name="Merged model of version 1").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("loragate adapters export-merged merger:1")
    expect(dialog).to_contain_text("10.2 KB")
    with page.expect_download() as started:
        dialog.get_by_role("link", name="Download").click()
    assert started.value.suggested_filename == "merger-1-merged.tar"
    with tarfile.open(started.value.path()) as archive:
        assert load(archive.extractfile("model.safetensors").read()).keys() == MERGED.keys()  # type: ignore[union-attr]
    expect(dialog).to_have_count(0)


def test_why_there_is_no_merged_model_is_shown(
    signed_in: Callable[..., Page], world: World, exporters_key: str
) -> None:
    engine = world.gateway.engine
    page = signed_in(exporters_key, "/adapters/merger")
    dialog = page.get_by_role("dialog")
    try:
        engine.export_failure = (grpc.StatusCode.FAILED_PRECONDITION, "The adapter uses DoRA.")
        page.get_by_role("button", name="Merged model of version 1").click()
        expect(dialog.get_by_role("alert")).to_contain_text("The adapter uses DoRA.")
        expect(dialog.get_by_role("link", name="Download")).to_have_count(0)
        engine.export_failure = None
        dialog.get_by_role("button", name="Try again").click()
        expect(dialog.get_by_role("link", name="Download")).to_be_visible()
        # another export has begun between the check and the click
        engine.export_failure = (grpc.StatusCode.RESOURCE_EXHAUSTED, "another export is running")
        dialog.get_by_role("link", name="Download").click()
        expect(dialog.get_by_role("alert")).to_contain_text("Every engine runs an export already.")
        engine.export_failure = None
        expect(dialog.get_by_role("alert")).to_contain_text("did not start: the gateway responded with status 503")
        expect(dialog.get_by_role("link", name="Download")).to_be_visible()
    finally:
        engine.export_failure = None


@pytest.mark.usefixtures("exporters_key")
def test_merged_models_are_for_the_tenants_own_keys_with_the_scope(
    signed_in: Callable[..., Page], world: World, cookies: Callable[[str], Cookie]
) -> None:
    page = signed_in(path="/adapters/merger")
    expect(page.get_by_role("link", name="Download the tensors of version 1")).to_be_visible()
    expect(page.get_by_role("button", name="Merged model of version 1")).to_have_count(0)
    world.gateway.engine.exports.clear()
    for key, status in ((world.key, 403), (world.new_key(world.other_tenant_id, "all", "export"), 404)):
        with _visitor(world, cookies(key)) as http:
            answer = http.get(MERGED_URL)
        location = f"/adapters/merger?merged=1&status={status}"
        assert (answer.status_code, answer.headers["location"]) == (303, location)
    assert not world.gateway.engine.exports


def test_a_merged_model_is_not_compressed_and_its_export_ends_with_the_browser(
    world: World, cookies: Callable[[str], Cookie], exporters_key: str
) -> None:
    engine, size = world.gateway.engine, "/v1/adapters/merger/versions/1/merged/size"
    with _visitor(world, cookies(exporters_key)) as http, world.api(exporters_key) as api:
        engine.export_allowed.clear()
        try:
            with http.stream("GET", MERGED_URL, headers={"accept-encoding": "gzip"}) as first:
                expected = str(sum(map(len, engine.export_parts)))
                assert (first.headers["content-length"], "content-encoding" in first.headers) == (expected, False)
                assert api.get(size).json()["error"]["code"] == "export_running"
            while api.get(size).status_code == 429:
                pass
        finally:
            world.gateway.allow_exports()
        assert http.get(MERGED_URL).content == b"".join(engine.export_parts)


def _visitor(world: World, cookie: Cookie) -> httpx.Client:
    return world.panel.visitor(cookies={cookie["name"]: cookie["value"]})


@pytest.fixture(scope="module")
def exporters_key(world: World) -> str:
    """A key of acme, which has the adapter `merger`, with the scope `export`."""
    world.gateway.engine.export_parts = [tar_of({"config.json": b"{}", "model.safetensors": save(MERGED)})]
    world.upload("merger", seed=28)
    return world.new_key(world.tenant_id, "all", "export")
