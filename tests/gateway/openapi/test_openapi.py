"""The OpenAPI document: complete, and consistent with what the routes accept and return."""

import functools
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.responses import ResponsesConfig
from loragate.gateway.openapi.document import openapi_document
from loragate.gateway.openapi.examples.requests import BASE, REQUESTS
from loragate.gateway.openapi.swagger_ui import ASSETS
from loragate.gateway.schemas.resources.fine_tuning import JobCreate
from tests.gateway import tiny_model
from tests.gateway.auth.test_roles import routes_of
from tests.gateway.batches.batch_files import CHAT, chat_line, jsonl
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.openapi_check import check_response, check_value, closed, found, operations
from tests.gateway.running_gateway import ADMIN_KEY, Gateway
from tests.gateway.stub_engine import StubEngine
from tests.gateway.training.training_objects import training_objects


@pytest.fixture
async def engine(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    """An engine whose model supports tools, and has room for them, and heads for labels."""
    async with stub_engine(
        tokenizer, max_model_len=4096, chat_template=tiny_model.TOOLS_TEMPLATE, **tiny_model.HEADS
    ) as stub:
        yield stub


@pytest.fixture
def config(config: GatewayConfig) -> GatewayConfig:
    return replace(config, responses=ResponsesConfig(store=True), merged_exports=True)


@pytest.fixture
def document(config: GatewayConfig) -> dict[str, Any]:
    return closed(openapi_document(create_app(config)))


def test_every_reference_leads_somewhere(config: GatewayConfig) -> None:
    """Generators of clients stop at a reference to nothing."""
    document = openapi_document(create_app(config))
    references = set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document)))
    assert len(references) > 100
    assert not [
        each
        for each in references
        if functools.reduce(lambda at, key: at.get(key, {}), each.split("/"), document) == {}
    ]


def test_every_route_is_described(config: GatewayConfig, document: dict[str, Any]) -> None:
    app = create_app(config)
    listed = (route for route in routes_of(app) if route.include_in_schema)  # all but the training API of the SDK
    routes = {(route.path_format, method.lower()) for route in listed for method in route.methods}
    pages = {("/openapi.json", "get"), ("/docs", "get"), ("/docs/{asset}", "get")}
    documented_elsewhere = {("/v1/adapters/ft:{model}", "get")}  # at /v1/adapters/{name}, which would be the same path
    assert {(path, method) for path, method, _ in operations(document)} == routes - pages - documented_elsewhere


def test_every_operation_is_complete(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for path, method, operation in operations(document):
        reported = f"{method} {path}"
        assert operation["summary"], reported
        assert operation["description"], reported
        assert set(operation["tags"]) <= tags, reported
        assert {scheme for each in operation["security"] for scheme in each} <= {"tenantKey", "adminKey"}
        guarded = operation["tags"] != ["health"]
        assert guarded == bool(operation["security"] and {} not in operation["security"]), reported
        if guarded:
            assert {"401", "500", "503"} <= operation["responses"].keys(), reported
            assert ("403" in operation["responses"]) == (path != "/v1/whoami"), reported
        if method in ("post", "put", "patch") and path not in (
            "/ping",
            "/v1/files/{file_id}/close",
            "/v1/uploads/{upload_id}/cancel",
            "/v1/batches/{batch_id}/cancel",
            "/v1/responses/{response_id}/cancel",
            "/v1/conversations",
            *(f"/v1/fine_tuning/jobs/{{fine_tuning_job_id}}/{act}" for act in ("cancel", "pause", "resume")),
            *(f"/admin/v1/jobs/{{fine_tuning_job_id}}/{act}" for act in ("cancel", "pause", "resume")),
            "/admin/v1/batches/{batch_id}/cancel",
            *(f"/admin/v1/training_runs/{{run_id}}/{act}" for act in ("pause", "resume", "end")),
            "/admin/v1/keys/{key_id}/rotate",
            "/admin/v1/tenants/{tenant_id}/keys",
            "/v1/adapters/{name}/rollback",
            "/v1/adapters/{name}/restore",
            "/v1/adapters/{name}/versions/{version}/restore",
        ):
            assert operation["requestBody"]["required"], reported
        for status, answer in operation["responses"].items():
            answer = found(document, answer)
            assert answer["description"], reported
            assert {"x-request-id", "openai-processing-ms"} <= answer["headers"].keys(), reported
            if status in ("429", "503") and path != "/readyz":
                assert {"retry-after", "retry-after-ms"} <= answer["headers"].keys(), reported


def test_errors_use_the_envelope(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        for status, answer in operation["responses"].items():
            if status >= "400" and path != "/readyz":
                content = found(document, answer)["content"]
                assert content.keys() == {"application/json"}
                shape = "MessageError" if path.startswith("/v1/messages") else "ErrorEnvelope"
                assert content["application/json"]["schema"]["$ref"].endswith(f"/{shape}")


def test_every_schema_is_unique_and_every_example_valid(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    checked = 0
    contents = [
        found(document, answer)["content"] for _, _, o in operations(document) for answer in o["responses"].values()
    ]
    contents += [
        operation["requestBody"]["content"] for _, _, operation in operations(document) if "requestBody" in operation
    ]
    for content in contents:
        for media, each in content.items():
            if media == "application/json" and each["schema"]:
                values = [each["example"]] if "example" in each else [e["value"] for e in each["examples"].values()]
                assert values, each
                for value in values:
                    check_value(document, each["schema"], value)
                    checked += 1
    assert checked > 100


class Tour:
    """Sends requests and compares the responses with the document."""

    def __init__(self, document: dict[str, Any], http: httpx.AsyncClient) -> None:
        self._document = document
        self._http = http
        self.taken: set[str] = set()

    async def __call__(self, operation_id: str, key: str = "", **request: Any) -> list[Any]:
        """Send all examples of the operation's body, or one request without a body. Path parameters are
        given by name.
        """
        ((path, method, operation),) = [
            each for each in operations(self._document) if each[2]["operationId"] == operation_id
        ]
        names = re.findall(r"\{(\w+)\}", path)
        path = path.format(**{name: request.pop(name) for name in names})
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        bodies = [each["value"] for each in content.get("examples", {}).values()]
        if request.keys() & {"files", "json"}:
            bodies = []
        answers = []
        for body in bodies or [None]:
            given = request if body is None else {"json": body, **request}
            response = await self._http.request(method, path, headers={"authorization": f"Bearer {key}"}, **given)
            assert response.is_success, f"{operation_id}: {response.text}"
            check_response(self._document, operation, response)
            is_json = response.headers["content-type"] == "application/json"
            answers.append(response.json() if is_json else response.text)
        self.taken.add(operation_id)
        return answers


async def test_every_example_gets_the_documented_response(
    gateway: Gateway, document: dict[str, Any], tmp_path: Path
) -> None:
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        tour, own = Tour(document, http), {"authorization": f"Bearer {gateway.key}"}
        operator = {"authorization": f"Bearer {ADMIN_KEY}"}
        files = {file.name: file.read_bytes() for file in tiny_model.write_adapter(tmp_path / "haiku").iterdir()}
        for _ in range(2):
            await tour("upload_adapter", gateway.key, data={"name": "haiku"}, files=files)
        for name, labels in (("topics", 2), ("helpful", 1)):
            folder = tiny_model.write_adapter(tmp_path / name, labels=labels)
            classifier = {file.name: file.read_bytes() for file in folder.iterdir()}
            await tour("upload_adapter", gateway.key, data={"name": name}, files=classifier)
        await tour("classify", gateway.key)
        gateway.engine.vector = lambda submit: [0.5]
        for name in ("score", "rerank", "rerank_v2"):
            await tour(name, gateway.key)
        await _tour_of_files(tour, gateway)
        await _tour_of_jobs(tour, gateway, files)
        await _tour_of_batches(tour, gateway)
        await _tour_of_responses(tour, gateway)
        await _tour_of_training(tour, gateway)
        probes = ("healthz", "readyz", "health", "ping", "post_ping", "get_version_of_server")
        for name in (*probes, "metrics"):
            await tour(name, ADMIN_KEY)
        for name in (
            "create_chat_completion",
            "create_completion",
            "create_response",
            "create_message",
            "count_message_tokens",
            "create_embeddings",
            "tokenize",
            "detokenize",
            "list_models",
            "list_adapters",
            "get_service_quality",
            "whoami",
        ):
            await tour(name, gateway.key)
        for name in ("get_adapter", "update_adapter", "list_versions", "list_aliases"):
            await tour(name, gateway.key, name="haiku")
        await tour("get_model", gateway.key, model="haiku:1")
        await tour("get_version", gateway.key, name="haiku", version=1)
        await tour("put_alias", gateway.key, name="haiku", alias="canary")
        await tour("get_alias_metrics", gateway.key, name="haiku", alias="canary")
        await tour("get_alias", gateway.key, name="haiku", alias="canary")
        await tour("delete_alias", gateway.key, name="haiku", alias="canary")
        await tour("change_version", gateway.key, name="haiku", version=1)
        await http.put("/v1/adapters/haiku/aliases/canary", json={"targets": [{"version": 1}]}, headers=own)
        await tour("promote", gateway.key, name="haiku")
        await tour("rollback", gateway.key, name="haiku")
        await http.put("/v1/adapters/haiku/aliases/canary", json={"targets": [{"version": 2}]}, headers=own)
        for name in ("delete_version", "restore_version"):
            await tour(name, gateway.key, name="haiku", version=1)
        for file in files:
            await tour("download_file", gateway.key, name="haiku", version=1, file=file)
        exporter = {"scopes": ["export"]}
        made = await http.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json=exporter, headers=operator)
        for name in ("get_merged_size", "export_merged"):
            await tour(name, made.json()["secret"], name="haiku", version=1)
        (begun,) = await tour("create_import", gateway.key)
        await tour("get_import", gateway.key, import_id=begun["id"])
        await tour("list_imports", gateway.key)
        for format in ("json", "csv"):
            await tour("get_usage", gateway.key, params={"format": format, "group_by": "hour,key,endpoint,model"})
            await tour("list_all_usage", ADMIN_KEY, params={"format": format, "group_by": "day,tenant,adapter"})
        (tenant, _) = await tour("create_tenant", ADMIN_KEY)
        for name in ("get_tenant", "list_keys"):
            await tour(name, ADMIN_KEY, tenant_id=tenant["id"])
        await tour("update_tenant", ADMIN_KEY, tenant_id=tenant["id"])
        (key, _) = await tour("create_key", ADMIN_KEY, tenant_id=tenant["id"])
        for name in ("get_key", "limit_key", "rotate_key", "revoke_key"):
            await tour(name, ADMIN_KEY, key_id=key["id"])
        (admin_key,) = await tour("create_admin_key", ADMIN_KEY)
        await tour("list_admin_keys", ADMIN_KEY)
        for name in ("get_admin_key", "revoke_admin_key"):
            await tour(name, ADMIN_KEY, key_id=admin_key["id"])
        (adapter,) = await tour("get_adapter", gateway.key, name="haiku")
        await tour("place_adapter", ADMIN_KEY, adapter_id=adapter["id"])
        for name in ("list_tenants", "list_all_adapters", "list_audit_events", "list_engines"):
            await tour(name, ADMIN_KEY)
        for name in ("get_engine", "list_engine_adapters", "trace_engine"):
            await tour(name, ADMIN_KEY, engine_id="engine-0")
        await tour("delete_tenant", ADMIN_KEY, tenant_id=tenant["id"])
        for name in ("delete_adapter", "restore"):
            await tour(name, gateway.key, name="haiku")
    missed = {operation["operationId"] for _, _, operation in operations(document)} - tour.taken
    assert missed == {"cancel_import"}, "which has failed by now"


EMPTY = {"file": ("more.jsonl", b"")}


async def _tour_of_files(tour: Tour, gateway: Gateway) -> None:
    file = {"file": ("train.jsonl", b"abc")}
    (made,) = await tour("create_file", gateway.key, data={"purpose": "fine-tune"}, files=file)
    await tour("list_files", gateway.key)
    for name in ("get_file", "get_file_content", "delete_file"):
        await tour(name, gateway.key, file_id=made["id"])
    (growing,) = await tour("create_file", gateway.key, data={"purpose": "fine-tune", "open": "true"}, files=EMPTY)
    await tour("append_to_file", gateway.key, file_id=growing["id"], files={"data": b'{"text": "x"}'})
    await tour("close_file", gateway.key, file_id=growing["id"])
    whole, cancelled = await tour("create_upload", gateway.key)
    (part,) = await tour("add_upload_part", gateway.key, upload_id=whole["id"], files={"data": b"abc"})
    for name in ("get_upload", "list_upload_parts"):
        await tour(name, gateway.key, upload_id=whole["id"])
    parts = {"part_ids": [part["id"]], "md5": "900150983cd24fb0d6963f7d28e17f72"}
    await tour("complete_upload", gateway.key, upload_id=whole["id"], json=parts)
    await tour("cancel_upload", gateway.key, upload_id=cancelled["id"])


async def _tour_of_batches(tour: Tour, gateway: Gateway) -> None:
    requests = {"file": ("requests.jsonl", jsonl([chat_line("one")]))}
    (file,) = await tour("create_file", gateway.key, data={"purpose": "batch"}, files=requests)
    gateway.engine.pause_after = 0
    asking = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
    (batch,) = await tour("create_batch", gateway.key, json=asking)
    await tour("list_batches", gateway.key)
    await tour("list_all_batches", ADMIN_KEY)
    for name in ("get_batch", "cancel_batch"):
        await tour(name, gateway.key, batch_id=batch["id"])
    for name in ("get_tenant_batch", "cancel_tenant_batch"):
        await tour(name, ADMIN_KEY, batch_id=batch["id"])
    gateway.engine.pause_after = None


async def _tour_of_responses(tour: Tour, gateway: Gateway) -> None:
    asked = {"model": tiny_model.MODEL_ID, "input": "Hello.", "background": True, "user": "ann"}
    (response,) = await tour("create_response", gateway.key, json=asked)
    for name in ("get_response", "cancel_response", "list_input_items", "delete_response"):
        await tour(name, gateway.key, response_id=response["id"])
    for name in ("list_responses", "count_input_tokens", "get_response_store", "export_responses"):
        await tour(name, gateway.key)
    async with gateway.admin() as http:
        made = await http.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json={"scopes": ["admin"]})
    await tour("update_response_store", made.json()["secret"])
    await tour("delete_responses_of_user", gateway.key, params={"user": "ann"})
    (talk, _) = await tour("create_conversation", gateway.key)
    of_talk = {"conversation_id": talk["id"]}
    for name in ("get_conversation", "update_conversation", "list_conversation_items"):
        await tour(name, gateway.key, **of_talk)
    (added,) = await tour("create_conversation_items", gateway.key, **of_talk)
    for name in ("get_conversation_item", "delete_conversation_item"):
        await tour(name, gateway.key, **of_talk, item_id=added["data"][0]["id"])
    await tour("delete_conversation", gateway.key, **of_talk)


async def _tour_of_training(tour: Tour, gateway: Gateway) -> None:
    assert gateway.services is not None
    names = await training_objects(gateway.services.store, gateway.tenant_id, "key1")
    await tour("list_training_runs", gateway.key)
    await tour("get_training_run", gateway.key, run_id=names["run_id"])
    await tour("list_all_training_runs", ADMIN_KEY)
    for name in ("pause_training_run", "resume_training_run", "end_training_run"):
        await tour(name, ADMIN_KEY, run_id=names["run_id"])


async def _tour_of_jobs(tour: Tour, gateway: Gateway, adapter: dict[str, bytes]) -> None:
    async def upload(name: str) -> None:
        await tour("upload_adapter", gateway.key, data={"name": name}, files=adapter)

    content = {"file": ("train.jsonl", b"{}")}
    (file,) = await tour("create_file", gateway.key, data={"purpose": "fine-tune"}, files=content)
    for example in REQUESTS[JobCreate].values():
        body = example | {"training_file": file["id"]}
        body |= dict.fromkeys(example.keys() & {"validation_file"}, file["id"])
        body |= {"model": tiny_model.MODEL_ID} if example["model"] == BASE else {}
        (job,) = await tour("create_fine_tuning_job", gateway.key, json=body)
    worker = FakeWorker(gateway)
    await worker.validate()
    job = await worker.train()
    await worker.run("checkpoint", job.id, 2, {"train_loss": 1.0}, None)
    named = {"fine_tuning_job_id": job.id}
    for name in ("get_fine_tuning_job", "list_fine_tuning_events", "list_fine_tuning_checkpoints"):
        await tour(name, gateway.key, **named)
    await tour("pause_fine_tuning_job", gateway.key, **named)
    await worker.run("pause", job.id)
    await tour("resume_fine_tuning_job", gateway.key, **named)
    for name in ("pause_tenant_job", "resume_tenant_job"):
        await tour(name, ADMIN_KEY, **named)
    await tour("cancel_fine_tuning_job", gateway.key, **named)
    await tour("list_fine_tuning_jobs", gateway.key, params={"metadata[team]": "a"})
    for name in ("get_tenant_job", "list_tenant_job_events", "list_tenant_job_checkpoints", "cancel_tenant_job"):
        await tour(name, ADMIN_KEY, **named)
    await tour("list_all_jobs", ADMIN_KEY, params={"status": "cancelled"})
    await worker.validate()
    model = await worker.succeed(await worker.train(), upload)
    await tour("get_adapter", gateway.key, name=model)
    await tour("delete_model", gateway.key, model=model)


class _References(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag != "style"
        self.found += [value for name, value in attributes if name in ("src", "href", "srcset", "action") and value]

    def handle_data(self, data: str) -> None:
        assert self.lasttag != "script" or not data.strip(), "a script in the page would need a hole in its policy"


async def test_the_page_loads_nothing_from_other_hosts(gateway: Gateway) -> None:
    async with httpx.AsyncClient(base_url=gateway.base_url) as http:
        page = await http.get("/docs")
        references = _References()
        references.feed(page.text)
        assert {name.removeprefix("docs/") for name in references.found} == set(ASSETS)
        assets = {name: await http.get(f"/{name}") for name in references.found}
        assert (await http.get("/docs/nothing.js")).status_code == 400
    for name, asset in assets.items():
        assert asset.status_code == 200, name
        assert len(asset.content) > 100
    policy = page.headers["content-security-policy"]
    assert "://" not in policy
    sources = {source for directive in policy.split(";") for source in directive.split()[1:]}
    assert sources == {"'none'", "'self'", "'unsafe-inline'", "data:"}
    assert "script-src 'self';" in policy
    setup, styles = (assets[f"docs/{name}"].text for name in ("setup.js", "swagger-ui.css"))
    assert "://" not in page.text + setup
    assert "validatorUrl: null" in setup
    assert not [
        url for url in re.findall(r"url\(([^)]*)\)|@import", styles) if not url.strip("\"'").startswith("data:")
    ]
