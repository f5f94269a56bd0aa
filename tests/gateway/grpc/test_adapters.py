"""AdapterService over real gRPC."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from loragate.v1 import adapters_pb2 as pb
from loragate.v1.inference_pb2 import ChatRequest
from tests.gateway import tiny_model
from tests.gateway.grpc.test_inference import as_rest
from tests.gateway.grpc_client import Client, connected, rejection
from tests.gateway.running_gateway import Gateway

POISONED = "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"


@pytest.fixture
async def narrow(small_gateway: Gateway) -> AsyncIterator[Client]:
    async with connected(small_gateway.grpc_target, small_gateway.key) as client:
        yield client


def parts(folder: Path, *, piece: int = 700, **first: str) -> Iterator[pb.UploadRequest]:
    """Yield two files as a client sends them, split anywhere."""
    yield pb.UploadRequest(**first)
    for field, name in (("adapter_config", "adapter_config.json"), ("adapter_model", "adapter_model.safetensors")):
        data = (folder / name).read_bytes()
        for start in range(0, len(data), piece):
            yield pb.UploadRequest(**{field: data[start : start + piece]})


async def unended(*messages: pb.UploadRequest) -> AsyncIterator[pb.UploadRequest]:
    """For uploads that are rejected while they arrive: grpc.aio may report INTERNAL to a client that still sends."""
    for message in messages:
        yield message
    await asyncio.Event().wait()


async def upload(client: Client, messages: Any) -> pb.AdapterVersion:
    return await client.adapters.Upload(messages, metadata=client.metadata)  # type: ignore[no-any-return]


async def test_the_engine_gets_the_uploaded_bytes(gateway: Gateway, client: Client, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "poet")
    created = await upload(client, parts(folder, name="poet"))
    assert (created.name, created.version, created.status) == ("poet", 1, "ready")
    request = ChatRequest(model="poet", messages=[{"role": "user", "content": "hello"}])
    assert (await client.inference.Chat(request, metadata=client.metadata)).text
    received = gateway.engine.adapters[created.digest]
    assert received.config_json == (folder / "adapter_config.json").read_bytes()
    assert received.tensors == (folder / "adapter_model.safetensors").read_bytes()
    await gateway.until_nothing_is_spooled()


async def test_one_message_or_many_give_the_same_adapter(client: Client, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "a")
    whole = pb.UploadRequest(
        name="a",
        adapter_config=(folder / "adapter_config.json").read_bytes(),
        adapter_model=(folder / "adapter_model.safetensors").read_bytes(),
    )
    one, many = await upload(client, iter([whole])), await upload(client, parts(folder, piece=97, name="b"))
    assert one.digest == many.digest


async def test_an_idempotency_key_is_shared_with_rest(gateway: Gateway, client: Client, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "a")
    keyed = (*client.metadata, ("idempotency-key", "once"))
    first = client.adapters.Upload(parts(folder, name="a"), metadata=keyed)
    created = await first
    again = client.adapters.Upload(parts(folder, name="a", piece=97), metadata=keyed)
    assert await again == created
    replayed = [dict(await call.initial_metadata()).get("idempotent-replayed") for call in (first, again)]
    assert replayed == [None, "true"]
    other = await rejection(client.adapters.Upload(parts(folder, name="b"), metadata=keyed))
    assert (other.status, other.code) == (grpc.StatusCode.ABORTED, "idempotency_key_reused")
    files = {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}
    async with gateway.http() as http:
        over_rest = await http.post(
            "/v1/adapters", data={"name": "a"}, files=files, headers={"idempotency-key": "once"}
        )
        assert (over_rest.status_code, over_rest.headers["idempotent-replayed"]) == (201, "true")
        assert len((await http.get("/v1/adapters/a/versions")).json()["data"]) == 1
    empty = (*client.metadata, ("idempotency-key", ""))
    assert (await rejection(client.adapters.Upload(unended(), metadata=empty))).param == "Idempotency-Key"


async def test_the_response_equals_that_of_rest(gateway: Gateway, client: Client, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "a")
    for name in ("a", "a", "b"):
        await upload(client, parts(folder, name=name, alias="canary" if name == "b" else "default"))
    targets = [{"version": 1, "weight": 9}, {"version": 2}]
    placed = await client.adapters.SetAlias(
        pb.SetAliasRequest(name="a", alias="split", targets=targets), metadata=client.metadata
    )
    listed = await client.adapters.List(pb.ListAdaptersRequest(limit=1), metadata=client.metadata)
    rest_of = await client.adapters.List(pb.ListAdaptersRequest(after=listed.last_id), metadata=client.metadata)
    adapter = await client.adapters.Get(pb.GetAdapterRequest(name="a"), metadata=client.metadata)
    versions = await client.adapters.ListVersions(pb.ListVersionsRequest(name="a", limit=1), metadata=client.metadata)
    older = await client.adapters.ListVersions(pb.ListVersionsRequest(name="a", after=2), metadata=client.metadata)
    version = await client.adapters.GetVersion(pb.GetVersionRequest(name="a", version=2), metadata=client.metadata)
    async with gateway.http() as http:
        for message, path in (
            (listed, "/v1/adapters?limit=1"),
            (rest_of, f"/v1/adapters?after={listed.last_id}"),
            (versions, "/v1/adapters/a/versions?limit=1"),
            (older, "/v1/adapters/a/versions?after=2"),
            (version, "/v1/adapters/a/versions/2"),
            (placed, "/v1/adapters/a/aliases/split"),
        ):
            assert comparable(as_rest(message)) == comparable(bare((await http.get(path)).json())), path
        document = bare((await http.get("/v1/adapters/a")).json())
    assert {name: [as_rest(target) for target in to.targets] for name, to in adapter.aliases.items()} == document[
        "aliases"
    ]
    assert (adapter.id, adapter.latest_version, adapter.created_at) == (document["id"], 2, document["created_at"])


def bare(document: Any) -> Any:
    """Return the document without JSON's null, false, 0 and empty values."""
    if isinstance(document, dict):
        return {key: bare(value) for key, value in document.items() if value not in (None, False, 0, "", [], {})}
    return [bare(each) for each in document] if isinstance(document, list) else document


def comparable(document: Any) -> Any:
    """Convert numbers that proto's JSON writes as text; remove aliases, whose targets are one level deeper there."""
    if isinstance(document, dict):
        return {key: comparable(value) for key, value in document.items() if key not in ("aliases", "id", "size_bytes")}
    if isinstance(document, list):
        return [comparable(each) for each in document]
    return int(document) if isinstance(document, str) and document.isdigit() else document


async def test_deleting(client: Client, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "a")
    for _ in range(2):
        await upload(client, parts(folder, name="a"))
    in_use = await rejection(
        client.adapters.DeleteVersion(pb.DeleteVersionRequest(name="a", version=2), metadata=client.metadata)
    )
    assert (in_use.status, in_use.code, in_use.param) == (grpc.StatusCode.ABORTED, "version_in_use", "version")
    gone = await client.adapters.DeleteVersion(pb.DeleteVersionRequest(name="a", version=1), metadata=client.metadata)
    assert (gone.name, gone.version, gone.deleted) == ("a", 1, True)
    assert (await client.adapters.Delete(pb.DeleteAdapterRequest(name="a"), metadata=client.metadata)).deleted
    missing = await rejection(client.adapters.Get(pb.GetAdapterRequest(name="a"), metadata=client.metadata))
    assert (missing.status, missing.code) == (grpc.StatusCode.NOT_FOUND, "adapter_not_found")


async def test_a_broken_adapter_names_the_tensor(client: Client, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "bad", poison=POISONED)
    error = await rejection(upload(client, parts(folder, name="bad")))
    assert error.status == grpc.StatusCode.INVALID_ARGUMENT
    assert POISONED in (error.param or "")
    assert not (await client.adapters.List(pb.ListAdaptersRequest(), metadata=client.metadata)).data


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "adapter_config.json"),
        ([{"name": "a"}], "adapter_config.json"),
        ([{"name": "a", "adapter_config": b"{}"}], "adapter_model.safetensors"),
        ([{"adapter_config": b"{}", "adapter_model": b""}], "name"),
        ([{"name": "a"}, {"name": "a"}], "name"),
        ([{"name": "x" * 2000}], "name"),
        ([{"name": "a", "adapter_config": b" " * (1 << 20)}, {"adapter_config": b" "}], "adapter_config.json"),
        ([{"name": "a:b", "adapter_config": b"{}", "adapter_model": b""}], "name"),
        ([{"name": "a", "alias": "7", "adapter_config": b"{}", "adapter_model": b""}], "alias"),
    ],
)
async def test_invalid_uploads_are_rejected(client: Client, messages: list[dict[str, Any]], param: str) -> None:
    error = await rejection(upload(client, (pb.UploadRequest(**message) for message in messages)))
    assert (error.status, error.param) == (grpc.StatusCode.INVALID_ARGUMENT, param)


@pytest.mark.parametrize(
    ("targets", "status", "param"),
    [
        ([], grpc.StatusCode.INVALID_ARGUMENT, "targets"),
        ([{"version": 0}], grpc.StatusCode.INVALID_ARGUMENT, "targets.0.version"),
        ([{"version": 1, "weight": 0}], grpc.StatusCode.INVALID_ARGUMENT, "targets.0.weight"),
        ([{"version": 9}], grpc.StatusCode.NOT_FOUND, "targets.0.version"),
    ],
)
async def test_invalid_aliases_are_rejected(
    client: Client, tmp_path: Path, targets: list[dict[str, int]], status: grpc.StatusCode, param: str
) -> None:
    await upload(client, parts(tiny_model.write_adapter(tmp_path / "a"), name="a"))
    request = pb.SetAliasRequest(name="a", alias="x", targets=targets)
    error = await rejection(client.adapters.SetAlias(request, metadata=client.metadata))
    assert (error.status, error.param) == (status, param)


async def test_an_upload_over_the_limit(narrow: Client) -> None:
    pieces = [pb.UploadRequest(adapter_model=b"x" * 4096)] * 17
    error = await rejection(upload(narrow, unended(*pieces)))
    assert (error.status, error.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "request_too_large")


async def test_an_upload_that_stalls(narrow: Client) -> None:
    error = await rejection(upload(narrow, unended(pb.UploadRequest(name="a"))))
    assert (error.status, error.code) == (grpc.StatusCode.DEADLINE_EXCEEDED, "request_timeout")


async def test_an_upload_cancelled_by_its_client_leaves_nothing(gateway: Gateway, client: Client) -> None:
    begun = pb.UploadRequest(name="a", adapter_model=b"x" * (2 << 20))
    call = client.adapters.Upload(unended(begun), metadata=client.metadata)
    while not gateway.spools():
        await asyncio.sleep(0.01)
    call.cancel()
    assert await gateway.lifecycle.idle(10)
    await gateway.until_nothing_is_spooled()  # a thread that was opening or closing it ends by itself
    assert not (await client.adapters.List(pb.ListAdaptersRequest(), metadata=client.metadata)).data


async def test_descriptions_and_tags_are_updated(client: Client, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "a")
    await upload(client, parts(folder, name="poet", tags="verse,sea", description="Answers in verse."))
    await upload(client, parts(folder, name="clerk"))

    async def update(**fields: Any) -> pb.Adapter:
        return await client.adapters.Update(pb.UpdateAdapterRequest(**fields), metadata=client.metadata)  # type: ignore[no-any-return]

    changed = await update(name="clerk", tags=pb.Tags(tags=["sea"]))
    assert (list(changed.tags), changed.description) == (["sea"], "")
    changed = await update(name="clerk", description="Dry.")
    assert (list(changed.tags), changed.description) == (["sea"], "Dry.")
    for wanted, names in (
        ({"search": "in VERSE"}, ["poet"]),
        ({"tags": ["sea"]}, ["clerk", "poet"]),
        ({"tags": ["sea"], "search": "dry"}, ["clerk"]),
    ):
        listed = await client.adapters.List(pb.ListAdaptersRequest(**wanted), metadata=client.metadata)
        assert [adapter.name for adapter in listed.data] == names
    assert list((await update(name="poet", tags=pb.Tags())).tags) == []
    error = await rejection(
        client.adapters.Update(
            pb.UpdateAdapterRequest(name="poet", tags=pb.Tags(tags=["a,b"])), metadata=client.metadata
        )
    )
    assert (error.status, error.param) == (grpc.StatusCode.INVALID_ARGUMENT, "tags")


async def test_operations_have_the_same_effect_as_over_rest(gateway: Gateway, client: Client, tmp_path: Path) -> None:
    adapters, metadata = client.adapters, client.metadata
    for seed in range(2):
        await upload(client, parts(tiny_model.write_adapter(tmp_path / f"{seed}", seed=seed), name="poet"))
    promoted = await adapters.Promote(pb.PromoteRequest(name="poet", version=1), metadata=metadata)
    assert [target.version for target in promoted.targets] == [1]
    keyed = (*metadata, ("idempotency-key", "back"))
    for _ in range(2):  # the second gets the stored response
        back = await adapters.Rollback(pb.RollbackRequest(name="poet"), metadata=keyed)
        assert [target.version for target in back.targets] == [2]
    disabled = pb.UpdateVersionRequest(name="poet", version=2, status="disabled")
    assert (await adapters.UpdateVersion(disabled, metadata=metadata)).status == "disabled"
    request = ChatRequest(model="poet", messages=[{"role": "user", "content": "hello"}])
    reported = await rejection(client.inference.Chat(request, metadata=metadata))
    assert (reported.status, reported.code) == (grpc.StatusCode.PERMISSION_DENIED, "adapter_disabled")
    changed = pb.UpdateAdapterRequest(name="poet", status="disabled", limits=pb.Limits(max_concurrency=3))
    adapter = await adapters.Update(changed, metadata=metadata)
    assert (adapter.status, adapter.limits.max_concurrency) == ("disabled", 3)
    lifted = pb.UpdateAdapterRequest(name="poet", limits=pb.Limits(tokens_per_day=9), unlimited=["max_concurrency"])
    limits = (await adapters.Update(lifted, metadata=metadata)).limits
    assert (limits.HasField("max_concurrency"), limits.tokens_per_day) == (False, 9)
    odd = await rejection(adapters.Update(pb.UpdateAdapterRequest(name="poet", unlimited=["x"]), metadata=metadata))
    assert (odd.status, odd.param) == (grpc.StatusCode.INVALID_ARGUMENT, "limits.x")
    await adapters.DeleteVersion(pb.DeleteVersionRequest(name="poet", version=1), metadata=metadata)
    restored = pb.RestoreVersionRequest(name="poet", version=1)
    assert (await adapters.RestoreVersion(restored, metadata=metadata)).status == "ready"
    await adapters.Delete(pb.DeleteAdapterRequest(name="poet"), metadata=metadata)
    (gone,) = (await adapters.List(pb.ListAdaptersRequest(status="deleted"), metadata=metadata)).data
    assert (gone.name, gone.status) == ("poet", "deleted")
    assert (await adapters.Restore(pb.RestoreAdapterRequest(name="poet"), metadata=metadata)).status == "disabled"
    states = [
        [v.version for v in (await adapters.ListVersions(request, metadata=metadata)).data]
        for request in (pb.ListVersionsRequest(name="poet", status=state) for state in ("ready", "disabled"))
    ]
    assert states == [[1], [2]]
    odd = await rejection(adapters.ListVersions(pb.ListVersionsRequest(name="poet", status="odd"), metadata=metadata))
    assert (odd.status, odd.param) == (grpc.StatusCode.INVALID_ARGUMENT, "status")


async def test_lineage_is_stored_at_upload(client: Client, tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "a")
    await upload(client, parts(folder, name="a"))
    first = pb.UploadRequest(name="a", notes="n", parent_version=1, evaluation={"accuracy": 0.5})
    rest = parts(folder)
    next(rest)
    created = await upload(client, iter([first, *rest]))
    assert (created.lineage.source, created.lineage.notes, created.lineage.parent_version) == ("upload", "n", 1)
    assert dict(created.lineage.evaluation) == {"accuracy": 0.5}
