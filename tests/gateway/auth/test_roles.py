"""Every route with every kind of caller: the declared requirement decides, and tenants are isolated."""

import importlib
import pkgutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from google.protobuf.descriptor_pool import Default as default_pool
from google.protobuf.message_factory import GetMessageClass
from sqlalchemy import update

import loragate.v1
from loragate.adapter_store.auth.principal import Scope
from loragate.adapter_store.batches.batch import BatchRequest
from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.responses.response import NewResponse, ResponseStatus
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.tenants import ApiKeyRow
from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.dependencies.requirements import (
    Admin,
    AdminOrAnybody,
    Holder,
    Public,
    Requirement,
    TenantAdmin,
    TenantWith,
)
from loragate.gateway.grpc.methods import METHODS
from tests.gateway.running_gateway import ADMIN_KEY, Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID
from tests.gateway.training.training_objects import training_objects

NO_TENANT = ("anonymous", "malformed", "unknown", "expired", "revoked")
OPERATORS_ONLY = {
    "POST /admin/v1/tenants",
    "GET /admin/v1/tenants",
    "PATCH /admin/v1/tenants/{tenant_id}",
    "DELETE /admin/v1/tenants/{tenant_id}",
    "PATCH /admin/v1/adapters/{adapter_id}",
}


@dataclass(frozen=True)
class Caller:
    """A caller; `scopes` is None for callers without a tenant."""

    role: str
    authorization: str | None
    scopes: frozenset[Scope] | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.authorization is None else {"authorization": self.authorization}

    def allows(self, scope: Scope) -> bool:
        assert self.scopes is not None
        return scope in self.scopes or (Scope.ALL in self.scopes and scope not in (Scope.ADMIN, Scope.EXPORT))


def routes_of(app: FastAPI) -> list[APIRoute]:
    found, waiting = [], list(app.routes)
    while waiting:
        route = waiting.pop()
        if isinstance(route, APIRoute):
            found.append(route)
        else:
            inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
            assert inner, f"a route that is no APIRoute: {route!r}"
            waiting.extend(inner)
    return sorted(found, key=lambda route: (route.path, sorted(route.methods)))


def requirement_of(route: APIRoute) -> Requirement:
    calls = [dependency.call for dependency in route.dependant.dependencies]
    (requirement,) = [call for call in calls if isinstance(call, Requirement)]
    if not isinstance(requirement, Public):
        assert calls[0] is requirement, f"{route.path} works before it knows who calls"
    return requirement


def test_every_route_declares_its_requirement(config: GatewayConfig) -> None:
    routes = routes_of(create_app(config))
    assert len(routes) >= 25
    for route in routes:
        requirement = requirement_of(route)
        assert isinstance(requirement, Admin | TenantAdmin) == route.path.startswith("/admin/"), route.path
        if isinstance(requirement, Public):
            probes = {"/healthz", "/readyz", "/health", "/ping", "/version"}
            pages = {"/openapi.json", "/docs", "/docs/{asset}"}
            tokenizer = {"/hf/{name:path}/resolve/{revision}/{file:path}", "/hf/api/models/{name:path}"}
            assert route.path in probes | pages | tokenizer | {"/api/v1/healthz", "/api/v1/downloads/{token}"}
        if isinstance(requirement, AdminOrAnybody):
            assert route.path == "/metrics"
    named = {f"{method} {route.path}": requirement_of(route) for route in routes for method in route.methods}
    assert all(isinstance(named[name], Admin) for name in OPERATORS_ONLY)


def expected(requirement: Requirement, caller: Caller) -> int | None:
    """Return 401, 403, or None for a caller that is admitted."""
    if isinstance(requirement, Public):
        return None
    if isinstance(requirement, AdminOrAnybody):
        return 401 if caller.role in NO_TENANT[1:] else None
    if caller.role in NO_TENANT:
        return 401
    if isinstance(requirement, Holder):
        return None
    if caller.scopes is None:
        return 403 if isinstance(requirement, TenantWith) else None
    if isinstance(requirement, Admin):
        return 403
    needed = requirement.scopes if isinstance(requirement, TenantWith) else (Scope.ADMIN,)
    return None if any(caller.allows(scope) for scope in needed) else 403


async def tenants_key(store: Store, tenant_id: str, *scopes: str) -> tuple[str, str]:
    async with store.admin(write=True) as admin:
        made = await admin.keys.create(tenant_id, scopes=scopes)
    return made.key.id, made.secret


@pytest.fixture
async def store(config: GatewayConfig) -> AsyncIterator[Store]:
    opened = await Store.open(config.database_url, config.blob_url, config.secret_key)
    yield opened
    await opened.close()


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    async with serving(replace(config, grpc_listen="127.0.0.1:0"), engine, tenants) as running:
        await running.until_ready()
        yield running


@pytest.fixture
async def callers(store: Store, gateway: Gateway) -> list[Caller]:
    """All callers of the first tenant, and all without a tenant."""

    async def caller(*scopes: Scope) -> Caller:
        _, secret = await tenants_key(store, gateway.tenant_id, *scopes)
        return Caller("+".join(scopes), f"Bearer {secret}", frozenset(scopes))

    expired_id, expired = await tenants_key(store, gateway.tenant_id, "all", "admin")
    revoked_id, revoked = await tenants_key(store, gateway.tenant_id, "all", "admin")
    async with store.admin(write=True) as admin:
        await admin.keys.revoke(revoked_id)
    async with store._database.operator(write=True) as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        await session.execute(update(ApiKeyRow).where(ApiKeyRow.id == expired_id).values(expires_at=past))
    return [
        Caller("anonymous", None),
        Caller("malformed", "Basic bGc6bGc="),
        Caller("unknown", f"Bearer {gateway.key[:-1]}"),
        Caller("expired", f"Bearer {expired}"),
        Caller("revoked", f"Bearer {revoked}"),
        *[await caller(scope) for scope in Scope],
        await caller(Scope.ALL, Scope.ADMIN),
        Caller("operator", f"Bearer {ADMIN_KEY}"),
    ]


def url_of(route: APIRoute, **values: str) -> str:
    """Return the route's URL, with `values` for its path parameters, or with names that do not exist."""
    url = route.path.replace("{model:path}", "{model}")
    for parameter in route.dependant.path_params:
        absent = "9" if parameter.name == "version" else "nothing"
        file = "adapter_config.json" if parameter.name == "file" else absent
        url = url.replace(f"{{{parameter.name}}}", values.get(parameter.name, file))
    return url


async def test_every_route_with_every_role(config: GatewayConfig, gateway: Gateway, callers: list[Caller]) -> None:
    wrong = []
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        for route in routes_of(create_app(config)):
            requirement = requirement_of(route)
            for method in sorted(route.methods):
                for caller in callers:
                    response = await http.request(method, url_of(route), headers=caller.headers)
                    status = response.status_code if response.status_code in (401, 403) else None
                    if status != expected(requirement, caller) or response.status_code == 500:
                        wrong.append((method, route.path, caller.role, response.status_code, response.text))
                    if status is not None:
                        anthropic = route.path.startswith("/v1/messages")
                        fields = {"message", "type"} if anthropic else {"message", "type", "param", "code"}
                        assert response.json()["error"].keys() == fields
    assert not wrong


def test_every_grpc_method_declares_its_requirement() -> None:
    """Of all public services: only the gateway calls the engine's."""
    described = {
        f"/{service.full_name}/{method.name}": method
        for found in pkgutil.iter_modules(loragate.v1.__path__, "loragate.v1.")
        if found.name.endswith("_pb2")
        for service in importlib.import_module(found.name).DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    tenants = {name for name in described if not name.startswith("/loragate.v1.EngineService/")}
    assert len(tenants) >= 12
    assert {name for name, method in METHODS.items() if isinstance(method.requirement, TenantWith)} == tenants


async def test_every_grpc_method_with_every_role(gateway: Gateway, callers: list[Caller]) -> None:
    codes = {401: grpc.StatusCode.UNAUTHENTICATED, 403: grpc.StatusCode.PERMISSION_DENIED}
    wrong = []
    async with grpc.aio.insecure_channel(gateway.grpc_target) as channel:
        for name, method in METHODS.items():
            if isinstance(method.requirement, Public):
                continue
            for caller in callers:
                code = await _code_of(channel.unary_stream(name)(b"", metadata=tuple(caller.headers.items())))
                caught = expected(method.requirement, caller)
                if (code != codes[caught]) if caught else (code in {*codes.values(), grpc.StatusCode.INTERNAL}):
                    wrong.append((name, caller.role, code))
    assert not wrong


async def _code_of(call: Any, answers: list[bytes] | None = None) -> grpc.StatusCode:
    """Return the status of a call once its responses, which are collected, have come."""
    try:
        async for answer in call:
            if answers is not None:
                answers.append(answer)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_no_caller_reaches_another_tenants_resources_over_grpc(
    gateway: Gateway, store: Store, upload: Any
) -> None:
    await upload("poet")
    job_id = await _job(gateway)
    before = await _resources(gateway, store)
    metadata = (("authorization", f"Bearer {gateway.other_key}"),)
    async with grpc.aio.insecure_channel(gateway.grpc_target) as channel:
        for name, method in METHODS.items():
            if isinstance(method.requirement, Public):
                continue
            call = channel.unary_stream(name)(_naming("poet", job_id, name), metadata=metadata)
            answers: list[bytes] = []
            code = await _code_of(call, answers)
            if code == grpc.StatusCode.OK:
                assert name.endswith(("/List", "/ListImports")), name
                assert not [word for word in (b"poet", job_id.encode()) if word in b"".join(answers)]
            else:
                assert code in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT}, (name, code)
    assert await _resources(gateway, store) == before


def _naming(adapter: str, job_id: str, method: str) -> bytes:
    """Return a request for the adapter's first version, or the job, in the fields that the method has for it."""
    service, _, name = method[1:].rpartition("/")
    request = GetMessageClass(default_pool().FindServiceByName(service).methods_by_name[name].input_type)()
    fields = request.DESCRIPTOR.fields_by_name
    wanted = {"name": adapter, "model": adapter, "alias": "default", "version": 1, "prompt": "x"}
    wanted |= {"fine_tuning_job_id": job_id}
    if "UploadRequest" not in request.DESCRIPTOR.name:  # parts of one's own upload, of which only one is set
        for field, value in wanted.items():
            if field in fields:
                setattr(request, field, value)
    if "messages" in fields:
        request.messages.add(role="user", content="x")
    if "targets" in fields:
        request.targets.add(version=1)
    return bytes(request.SerializeToString())


async def test_no_tenant_reaches_objects_of_another(
    config: GatewayConfig, gateway: Gateway, store: Store, upload: Any
) -> None:
    """The other tenant's strongest key is used on every route, with all the names of the first tenant's resources."""
    await upload("poet")
    key_id, _ = await tenants_key(store, gateway.tenant_id, "all")
    async with gateway.admin() as admin:
        tenants = (await admin.get("/admin/v1/tenants")).json()["data"]
    (other_id,) = [tenant["id"] for tenant in tenants if tenant["id"] != gateway.tenant_id]
    _, secret = await tenants_key(store, other_id, "all", "admin")
    names = {
        "tenant_id": gateway.tenant_id,
        "key_id": key_id,
        "name": "poet",
        "version": "1",
        "alias": "default",
        "model": "poet",
        "file": "adapter_config.json",
        **await _files(gateway),
        "fine_tuning_job_id": await _job(gateway),
        **await training_objects(store, gateway.tenant_id, key_id),
        **await stored_response(store, gateway.tenant_id, key_id),
        "batch_id": await _batch(store, gateway.tenant_id, key_id),
    }
    run, session, sampler = names["run_id"], names["session_id"], names["sampler_id"]
    path = f"tinker://{run}/weights/{names['checkpoint']}"
    command = {"model_id": run, "seq_id": 1}
    bodies: dict[str, Any] = {
        "/api/v1/asample": {
            "sampling_session_id": sampler,
            "seq_id": 1,
            "prompt": {"chunks": [{"tokens": [1]}]},
            "sampling_params": {},
        },
        "/api/v1/create_model": {
            "session_id": session,
            "model_seq_id": 7,
            "base_model": MODEL_ID,
            "lora_config": {"rank": 2},
        },
        "/api/v1/create_sampling_session": {"session_id": session, "sampling_session_seq_id": 7},
        "/api/v1/get_info": {"model_id": run},
        "/api/v1/load_weights": {**command, "path": path, "optimizer": True},
        "/api/v1/optim_step": {**command, "adam_params": {}},
        "/api/v1/retrieve_future": {"request_id": f"{run}:0"},
        "/api/v1/save_weights": {**command, "path": "x"},
        "/api/v1/save_weights_external": {**command, "path": "x"},
        "/api/v1/save_weights_for_sampler": {**command, "path": "x"},
        "/api/v1/session_heartbeat": {"session_id": session},
        "/api/v1/sessions/{session_id}/finish": {"reason": {"type": "success"}},
        "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{checkpoint}/ttl": {"ttl_seconds": 3600},
        "/api/v1/weights_info": {"tinker_path": path},
        "/v1/adapters/{name}/aliases/{alias}": {"targets": [{"version": 1}]},
        "/v1/adapters/{name}/promote": {"version": 1},
        "/v1/adapters/{name}/versions/{version}": {"status": "disabled"},
        "/v1/chat/completions": {"model": "poet", "messages": [{"role": "user", "content": "x"}]},
        "/v1/completions": {"model": "poet", "prompt": "x"},
        "/v1/fine_tuning/jobs": {"model": "poet", "training_file": "file-x"},
        "/v1/embeddings": {"model": "poet", "input": "x"},
        "/v1/classify": {"model": "poet", "input": "x"},
        "/v1/score": {"model": "poet", "text_1": "x", "text_2": "y"},
        "/v1/rerank": {"model": "poet", "query": "x", "documents": ["y"]},
        "/v2/rerank": {"model": "poet", "query": "x", "documents": ["y"]},
        "/v1/messages": {"model": "poet", "max_tokens": 4, "messages": [{"role": "user", "content": "x"}]},
        "/v1/messages/count_tokens": {"model": "poet", "messages": [{"role": "user", "content": "x"}]},
        "/v1/responses": {"model": "poet", "input": "x"},
        "/v1/responses/input_tokens": {"model": "poet", "input": "x"},
        "/v1/conversations/{conversation_id}": {"metadata": {}},
        "/v1/conversations/{conversation_id}/items": {"items": [{"role": "user", "content": "x"}]},
        "/v1/uploads/{upload_id}/complete": {"part_ids": ["part_x"]},
    }
    before = await _resources(gateway, store)
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        for route in routes_of(create_app(config)):
            for method in sorted(route.methods):
                owned = bool(route.dependant.path_params) or (route.path in bodies and method != "GET")
                headers = {"authorization": f"Bearer {secret}"}
                if method in ("POST", "PUT", "PATCH"):
                    body = bodies.get(route.path, {})
                    response = await http.request(method, url_of(route, **names), headers=headers, json=body)
                else:
                    response = await http.request(method, url_of(route, **names), headers=headers)
                reported = f"{method} {route.path}: {response.status_code} {response.text}"
                if not isinstance(requirement_of(route), Public | AdminOrAnybody):
                    assert not owned or response.status_code in (403, 404), reported
                assert key_id not in response.text, reported
                assert gateway.tenant_id not in response.text, reported
                assert "poet" not in response.text or response.status_code == 404, reported
    assert await _resources(gateway, store) == before


async def _files(gateway: Gateway) -> dict[str, str]:
    """Create a file and an upload of the first tenant."""
    async with gateway.http() as http:
        form: dict[str, Any] = {"data": {"purpose": "adapter"}, "files": {"file": ("poet", b"x")}}
        file = (await http.post("/v1/files", **form)).json()
        facts = {"filename": "poet", "purpose": "adapter", "bytes": 1, "mime_type": "text/plain"}
        upload = (await http.post("/v1/uploads", json=facts)).json()
    return {"file_id": file["id"], "upload_id": upload["id"]}


async def stored_response(store: Store, tenant_id: str, key_id: str) -> dict[str, str]:
    """Store a background response and a conversation of the tenant."""
    item = {"id": "msg_1", "content": "poet"}
    document = {"id": "resp_1", "output": []}
    failed = NewResponse("resp_1", key_id, "poet", ResponseStatus.FAILED, [item], {}, document, background=True)
    async with store.tenant(tenant_id, write=True) as scope:
        await scope.responses.add(failed)
        talk = await scope.conversations.create({}, [item], None)
    return {"response_id": "resp_1", "conversation_id": talk.id, "item_id": "msg_1"}


async def _batch(store: Store, tenant_id: str, key_id: str) -> str:
    """Create a batch of the tenant."""
    asked = BatchRequest(key_id, "/v1/chat/completions", "file-poet", "24h", timedelta(days=1), {"name": "poet"})
    async with store.tenant(tenant_id, write=True) as scope:
        return (await scope.batches.create(asked)).id


async def _job(gateway: Gateway) -> str:
    """Create a fine-tuning job of the first tenant."""
    async with gateway.http() as http:
        form: dict[str, Any] = {"data": {"purpose": "fine-tune"}, "files": {"file": ("poet", b"x")}}
        file = (await http.post("/v1/files", **form)).json()["id"]
        body = {"model": "poet", "training_file": file, "suffix": "poet"}
        job: str = (await http.post("/v1/fine_tuning/jobs", json=body)).json()["id"]
    return job


async def _resources(gateway: Gateway, store: Store) -> Any:
    async with store.tenant(gateway.tenant_id) as scope, store.admin() as admin:
        return (
            list(await scope.adapters.list()),
            list(await scope.adapters.versions("poet")),
            list(await scope.files.list(Purpose)),
            list(await scope.jobs.list()),
            list(await scope.responses.list()),
            list(await scope.conversations.list()),
            await scope.training_sessions.list(offset=0, limit=9),
            await scope.training_runs.list(offset=0, limit=9),
            await scope.training_checkpoints.list(None, offset=0, limit=9),
            [(key.id, key.expires_at, key.revoked_at) for key in await admin.keys.list(gateway.tenant_id)],
            await admin.tenants.get(gateway.tenant_id),
            [event.id for event in await admin.audit.list(tenant_id=gateway.tenant_id, limit=100)],
        )


async def test_a_tenant_administrator_manages_its_own_keys(gateway: Gateway, store: Store) -> None:
    _, secret = await tenants_key(store, gateway.tenant_id, "admin")
    url = f"/admin/v1/tenants/{gateway.tenant_id}"
    async with gateway.http(secret) as http:
        assert (await http.get(url)).json()["id"] == gateway.tenant_id
        made = await http.post(f"{url}/keys", json={"scopes": ["inference"]}, headers={"x-request-id": "req-1"})
        assert made.status_code == 201
        new = (await http.post(f"/admin/v1/keys/{made.json()['id']}/rotate")).json()
        assert (await http.delete(f"/admin/v1/keys/{new['id']}")).json()["deleted"] is True
        ids = [key["id"] for key in (await http.get(f"{url}/keys")).json()["data"]]
        assert {new["id"], made.json()["id"]} <= set(ids)
        own = (await http.get("/admin/v1/audit")).json()["data"]
        assert (await http.get("/v1/models")).status_code == 403
    assert {event["tenant_id"] for event in own} == {gateway.tenant_id}
    assert [event["action"] for event in own[:4]] == [
        "api_key.revoke",
        "api_key.rotate",
        "api_key.revoke",
        "api_key.create",
    ]
    assert {event["actor"] for event in own[:4]} == {f"api_key:{secret.split('-')[1]}"}
    assert own[3]["request_id"] == "req-1"


async def test_every_action_names_its_actor(gateway: Gateway, upload: Any) -> None:
    async with gateway.admin() as admin, gateway.http() as http:
        tenant = (await admin.post("/admin/v1/tenants", json={"name": "new"})).json()
        await admin.patch(f"/admin/v1/tenants/{tenant['id']}", json={"weight": 3})
        key = (await admin.post(f"/admin/v1/tenants/{tenant['id']}/keys")).json()
        await admin.delete(f"/admin/v1/keys/{key['id']}")
        await admin.delete(f"/admin/v1/tenants/{tenant['id']}")
        await upload("poet")
        await http.put("/v1/adapters/poet/aliases/old", json={"targets": [{"version": 1}]})
        await http.delete("/v1/adapters/poet/versions/1")  # rejected: not an action
        await http.delete("/v1/adapters/poet")
        url = "/admin/v1/audit?limit=100"
        mine = (await admin.get(f"{url}&actor=admin_key")).json()["data"]
        theirs = (await admin.get(f"{url}&actor=api_key:{gateway.key.split('-')[1]}")).json()["data"]
        page = (await admin.get("/admin/v1/audit?limit=1")).json()
        rest = (await admin.get(f"{url}&after={page['last_id']}")).json()
        none = (await admin.get(f"{url}&until=2001-01-01T00:00:00Z")).json()
        odd = await admin.get("/admin/v1/audit?since=yesterday")
    assert [event["action"] for event in mine[::-1]] == [
        "tenant.create",
        "tenant.update",
        "api_key.create",
        "api_key.revoke",
        "tenant.delete",
    ]
    assert [event["action"] for event in theirs[::-1]] == [
        "adapter_version.create",
        "alias.set",
        "alias.set",
        "adapter.delete",
    ]
    assert all(event["request_id"] for event in mine + theirs)
    assert page["has_more"]
    assert page["data"][0] not in rest["data"]
    assert none["data"] == []
    assert (odd.status_code, odd.json()["error"]["param"]) == (400, "since")
