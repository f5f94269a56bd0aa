"""Promotion, rollback, restoration and disabling, as clients see them."""

from typing import Any

import pytest

from loragate.v1 import adapters_pb2
from tests.gateway.grpc_client import Client
from tests.gateway.running_gateway import Gateway


@pytest.fixture
async def poet(gateway: Gateway, upload: Any) -> Gateway:
    """An adapter with two versions."""
    await upload("poet", seed=1)
    await upload("poet", seed=2)
    return gateway


async def _ask(http: Any, model: str = "poet", **more: Any) -> Any:
    return await http.post("/v1/completions", json={"model": model, "prompt": "x", "max_tokens": 1, **more})


def _version(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-loragate-adapter"].partition("@")[0])


async def test_from_a_canary_to_all_traffic_and_back(poet: Gateway) -> None:
    async with poet.http() as http:
        split = {"targets": [{"version": 1, "weight": 90}, {"version": 2, "weight": 10}]}
        await http.put("/v1/adapters/poet/aliases/default", json=split)
        promoted = await http.post("/v1/adapters/poet/promote", json={"version": 2})
        assert (promoted.status_code, promoted.json()["targets"]) == (200, [{"version": 2, "weight": 1}])
        assert _version(await _ask(http)) == "poet:2"
        back = await http.post("/v1/adapters/poet/rollback")
        assert (back.status_code, back.json()["targets"]) == (200, split["targets"])


async def test_a_repeated_rollback_with_the_same_key_is_done_once(poet: Gateway) -> None:
    async with poet.http() as http:
        headers = {"idempotency-key": "back"}
        first, second = [await http.post("/v1/adapters/poet/rollback", headers=headers) for _ in range(2)]
        assert first.json() == second.json()
        assert second.headers["idempotent-replayed"] == "true"
        assert _version(await _ask(http)) == "poet:1"
        third = await http.post("/v1/adapters/poet/rollback")
        assert third.json()["targets"] == [{"version": 2, "weight": 1}]


@pytest.mark.parametrize(
    "body", [{}, {"version": 1, "from_alias": "canary"}, {"version": 0}, {"alias": "7", "version": 1}]
)
async def test_invalid_promotions_are_rejected(poet: Gateway, body: dict[str, Any]) -> None:
    async with poet.http() as http:
        caught = await http.post("/v1/adapters/poet/promote", json=body)
    assert caught.status_code == 400, caught.text
    assert caught.json()["error"]["param"] in ("version", "alias")


async def test_a_disabled_version_is_403_to_its_owner_and_404_to_others(poet: Gateway) -> None:
    async with poet.http() as http, poet.http(poet.other_key) as other:
        disabled = await http.patch("/v1/adapters/poet/versions/2", json={"status": "disabled"})
        assert (disabled.status_code, disabled.json()["status"]) == (200, "disabled")
        caught = await _ask(http)
        assert (caught.status_code, caught.json()["error"]["code"]) == (403, "adapter_disabled")
        assert (await _ask(other)).status_code == 404
        assert _version(await _ask(http, "poet:1")) == "poet:1"
        await http.patch("/v1/adapters/poet/versions/2", json={"status": "ready"})
        assert _version(await _ask(http)) == "poet:2"


async def test_a_stream_in_flight_survives_any_change_to_its_version(poet: Gateway) -> None:
    """Its version is disabled, rolled back and deleted meanwhile; the stream ends on the version that it began with."""
    poet.engine.pause_after, poet.engine.script = 2, lambda submit: [65, 66, 67, 68]
    asked = {"model": "poet", "prompt": "x", "max_tokens": 4, "stream": True}
    async with poet.http() as http, http.stream("POST", "/v1/completions", json=asked) as stream:
        await poet.engine.paused.wait()
        async with poet.http() as second:
            await second.patch("/v1/adapters/poet/versions/2", json={"status": "disabled"})
            await second.post("/v1/adapters/poet/rollback")
            assert (await second.delete("/v1/adapters/poet/versions/2")).status_code == 200
            assert (await second.delete("/v1/adapters/poet")).status_code == 200
            assert (await _ask(second)).status_code == 404
        poet.engine.resume.set()
        text = b"".join([chunk async for chunk in stream.aiter_bytes()])
    assert stream.headers["x-loragate-adapter"].startswith("poet:2@")
    assert text.rstrip().endswith(b"[DONE]")


async def test_a_deleted_adapter_is_listed_and_restored(poet: Gateway) -> None:
    async with poet.http() as http:
        await http.delete("/v1/adapters/poet")
        assert (await http.get("/v1/adapters")).json()["data"] == []
        (gone,) = (await http.get("/v1/adapters?status=deleted")).json()["data"]
        assert (gone["status"], gone["deleted_at"] is None) == ("deleted", False)
        restored = await http.post("/v1/adapters/poet/restore")
        assert (restored.status_code, restored.json()["status"]) == (200, "ready")
        assert _version(await _ask(http)) == "poet:2"
        for name in ("poet", "unknown"):
            assert (await http.post(f"/v1/adapters/{name}/restore")).status_code == 404


async def test_versions_are_listed_by_state(poet: Gateway) -> None:
    async with poet.http() as http:
        await http.delete("/v1/adapters/poet/versions/1")
        states = {}
        for state in ("ready", "deleted", "disabled", "verifying", "rejected", "quarantined"):
            page = (await http.get(f"/v1/adapters/poet/versions?status={state}")).json()
            states[state] = [version["version"] for version in page["data"]]
        restored = await http.post("/v1/adapters/poet/versions/1/restore")
        unknown = await http.get("/v1/adapters/poet/versions?status=odd")
    assert states == {"ready": [2], "deleted": [1], "disabled": [], "verifying": [], "rejected": [], "quarantined": []}
    assert restored.json()["status"] == "ready"
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "status")


async def test_a_limit_and_a_state_are_changed_together(poet: Gateway) -> None:
    async with poet.http() as http:
        changed = await http.patch("/v1/adapters/poet", json={"status": "disabled", "limits": {"max_concurrency": 3}})
        assert (changed.json()["status"], changed.json()["limits"]["max_concurrency"]) == ("disabled", 3)
        caught = await _ask(http, "poet:1")
    assert caught.status_code == 403


async def test_a_deleted_alias_is_not_found_from_the_next_request_on(
    gateway: Gateway, client: Client, upload: Any
) -> None:
    await upload("poet")
    ask = {"model": "poet@live", "prompt": "x", "max_tokens": 1}
    path, targets = "/v1/adapters/poet/aliases/live", {"targets": [{"version": 1}]}
    async with gateway.http() as http, gateway.http(gateway.other_key) as other:
        await http.put(path, json=targets)
        assert (await http.post("/v1/completions", json=ask)).status_code == 200
        assert (await other.delete(path)).status_code == 404
        gone = (await http.delete(path)).json()
        assert (gone["object"], gone["name"], gone["alias"], gone["deleted"]) == ("adapter.alias", "poet", "live", True)
        assert (await http.post("/v1/completions", json=ask)).status_code == 404
        kept = await http.delete("/v1/adapters/poet/aliases/default")
        assert (kept.status_code, kept.json()["error"]["code"]) == (409, "default_alias")
        await http.put(path, json=targets)
        request = adapters_pb2.DeleteAliasRequest(name="poet", alias="live")
        reported = await client.adapters.DeleteAlias(request, metadata=client.metadata)
        assert (reported.id, reported.object, reported.alias, reported.deleted) == (
            gone["id"],
            "adapter.alias",
            "live",
            True,
        )
        assert (await http.get(path)).status_code == 404
