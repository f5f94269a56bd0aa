"""Permissions over gRPC, and the public methods."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from loragate.adapter_store.auth.principal import Scope
from loragate.gateway.dependencies.requirements import Public, TenantWith
from loragate.gateway.grpc.methods import METHODS
from loragate.v1 import adapters_pb2, batches_pb2, engine_pb2, fine_tuning_pb2, inference_pb2
from tests.gateway.grpc_client import connected, rich_error
from tests.gateway.running_gateway import ADMIN_KEY, Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

TENANTS = [
    f"/{service.full_name}/{method.name}"
    for module in (inference_pb2, adapters_pb2, fine_tuning_pb2, batches_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
CHAT = inference_pb2.ChatRequest(model=MODEL_ID, messages=[{"role": "user", "content": "x"}])
SERVICES = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "loragate.v1.AdapterService",
    "loragate.v1.BatchService",
    "loragate.v1.FineTuningService",
    "loragate.v1.InferenceService",
}


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


async def key_with(gateway: Gateway, *scopes: str) -> str:
    async with gateway.admin() as admin:
        answer = await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json={"scopes": scopes})
    return str(answer.json()["secret"])


async def status_of(gateway: Gateway, method: str, key: str | None) -> grpc.StatusCode:
    """Return the status of a call without a message."""
    async with connected(gateway.grpc_target, key) as client:
        try:
            await client.raw(method, b"")
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_every_method_is_in_the_table_with_its_requirement() -> None:
    public = {name for name, method in METHODS.items() if isinstance(method.requirement, Public)}
    assert METHODS.keys() - public == set(TENANTS)
    assert {name.split("/")[1].rpartition(".")[0] for name in public} == {
        "grpc.health.v1",
        "grpc.reflection.v1",
        "grpc.reflection.v1alpha",
    }
    for name in TENANTS:
        requirement = METHODS[name].requirement
        assert isinstance(requirement, TenantWith)
        is_inference = "InferenceService" in name or "BatchService" in name
        assert (requirement.scopes == (Scope.INFERENCE,)) == is_inference


@pytest.mark.parametrize("method", TENANTS)
async def test_every_method_requires_a_tenants_key_with_its_scope(gateway: Gateway, method: str) -> None:
    requirement = METHODS[method].requirement
    assert isinstance(requirement, TenantWith)
    others = {Scope.INFERENCE, Scope.ADAPTERS_READ, Scope.ADAPTERS_WRITE} - {*requirement.scopes}
    unauthenticated, denied = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
    for key, expected in ((None, unauthenticated), ("lg-a-b", unauthenticated), (ADMIN_KEY, denied)):
        assert await status_of(gateway, method, key) == expected
    assert await status_of(gateway, method, await key_with(gateway, *sorted(others))) == denied
    allowed = await status_of(gateway, method, await key_with(gateway, requirement.scopes[0].value))
    assert allowed not in {unauthenticated, denied}


@pytest.mark.parametrize(
    "method",
    [
        "/loragate.v1.EngineService/Describe",
        "/loragate.v1.EngineService/Session",
        "/loragate.v1.InferenceService/chat",
        "/loragate.v1.InferenceService/",
        "/nothing",
    ],
)
async def test_unknown_methods_do_not_exist(gateway: Gateway, method: str) -> None:
    for key in (None, gateway.key, ADMIN_KEY):
        assert await status_of(gateway, method, key) == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Basic abc", "Bearer lg-a-b", "Bearer " + "x" * 5000, "Bearer ' OR 1=1 --"]
)
async def test_no_key(gateway: Gateway, authorization: str) -> None:
    async with connected(gateway.grpc_target, None) as client:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.inference.Chat(CHAT, metadata=(("authorization", authorization),))
    error = rich_error(failed.value)
    assert error.status == grpc.StatusCode.UNAUTHENTICATED
    assert error.code in {"missing_api_key", "invalid_api_key"}


async def test_nothing_is_read_before_authentication(gateway: Gateway) -> None:
    """Without a key the response comes although no message ever does."""
    async with connected(gateway.grpc_target, None) as client:
        call = client.channel.stream_unary("/loragate.v1.AdapterService/Upload")()
        assert await call.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_a_revoked_key_is_rejected_at_once(gateway: Gateway) -> None:
    key = await key_with(gateway, "inference")
    async with connected(gateway.grpc_target, key) as client, gateway.admin() as admin:
        await client.inference.Chat(CHAT, metadata=client.metadata)
        keys = (await admin.get(f"/admin/v1/tenants/{gateway.tenant_id}/keys")).json()["data"]
        await admin.delete(f"/admin/v1/keys/{keys[0]['id']}")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.inference.Chat(CHAT, metadata=client.metadata)
    assert failed.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_a_foreign_adapter_is_not_found(gateway: Gateway, upload: Any) -> None:
    await upload("poet")
    answers = []
    async with connected(gateway.grpc_target, gateway.other_key) as client:
        for model in ("poet", "missing"):
            CHAT_OF = inference_pb2.ChatRequest(model=model, messages=CHAT.messages)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await client.inference.Chat(CHAT_OF, metadata=client.metadata)
            answers.append(rich_error(failed.value))
        with pytest.raises(grpc.aio.AioRpcError) as hidden:
            await client.adapters.Get(adapters_pb2.GetAdapterRequest(name="poet"), metadata=client.metadata)
        assert not (await client.adapters.List(adapters_pb2.ListAdaptersRequest(), metadata=client.metadata)).data
    foreign, missing = answers
    assert (foreign.status, foreign.code) == (grpc.StatusCode.NOT_FOUND, "model_not_found")
    assert foreign.message.replace("poet", "missing") == missing.message
    assert rich_error(hidden.value).code == "adapter_not_found"


@pytest.mark.asyncio(loop_scope="function")
async def test_health_follows_readiness(own_gateway: Gateway) -> None:
    serving, not_serving = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
    async with connected(own_gateway.grpc_target, None) as client:
        stub: Any = HealthStub(client.channel)

        async def check(service: str) -> int:
            return int((await stub.Check(HealthCheckRequest(service=service))).status)

        names = ("", "loragate.v1.InferenceService", "loragate.v1.AdapterService")
        assert [await check(name) for name in names] == [serving] * 3
        watch = stub.Watch(HealthCheckRequest())
        assert (await watch.read()).status == serving
        unknown = stub.Watch(HealthCheckRequest(service="loragate.v1.EngineService"))
        assert (await unknown.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await check("loragate.v1.EngineService")
        assert failed.value.code() == grpc.StatusCode.NOT_FOUND

        await own_gateway.engine.kill()
        assert (await watch.read()).status == not_serving
        assert [await check(name) for name in names] == [not_serving, not_serving, serving]
        own_gateway.lifecycle.begin_drain()
        assert await check(names[2]) == not_serving


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_what_tenants_may_call(gateway: Gateway, version: str) -> None:
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    async with connected(gateway.grpc_target, None) as client:
        [raw] = await client.raw(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo", question.SerializeToString()
        )
    answer = reflection_pb2.ServerReflectionResponse.FromString(raw)
    assert {service.name for service in answer.list_services_response.service} == SERVICES


async def test_reflection_reveals_nothing_of_the_engine(gateway: Gateway) -> None:
    questions = [
        reflection_pb2.ServerReflectionRequest(file_by_filename=engine_pb2.DESCRIPTOR.name),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="loragate.v1.EngineService"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="loragate.v1.Submit"),
        reflection_pb2.ServerReflectionRequest(all_extension_numbers_of_type="loragate.v1.Submit"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="loragate.v1.InferenceService"),
    ]

    async def asked() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        for question in questions:
            yield question

    async with connected(gateway.grpc_target, None) as client:
        stub: Any = ServerReflectionStub(client.channel)
        *hidden, shown = [answer async for answer in stub.ServerReflectionInfo(asked())]
    assert [answer.error_response.error_code for answer in hidden] == [grpc.StatusCode.NOT_FOUND.value[0]] * 4
    [file] = shown.file_descriptor_response.file_descriptor_proto
    assert FileDescriptorProto.FromString(file).name == "loragate/v1/inference.proto"


async def test_a_client_learns_every_message_by_reflection(gateway: Gateway) -> None:
    """As grpcurl does, with the library's own client."""
    import asyncio

    def learn() -> set[str]:
        with grpc.insecure_channel(gateway.grpc_target) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            file = database.FindFileContainingSymbol("loragate.v1.AdapterService")
            assert file is not None
            return {method.name for method in file.service[0].method}

    assert await asyncio.to_thread(learn) >= {"Upload", "List", "Get", "SetAlias", "Delete"}
