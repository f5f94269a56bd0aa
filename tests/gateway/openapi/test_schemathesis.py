"""Schemathesis checks a gateway against its OpenAPI document: no 5xx, and no undocumented response.

It runs as a separate program against a server; it derives valid and invalid requests, and follows the ids in responses
to other routes.
"""

import asyncio
import copy
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.openapi.document import openapi_document
from tests.gateway import tiny_model
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.openapi_check import closed
from tests.gateway.running_gateway import ADMIN_KEY, Gateway
from tests.gateway.stub_engine import StubEngine

TENANTS, OPERATORS = "^/v1/", "^/(admin/|healthz|readyz|metrics)"

# Most names would not exist, and most requests end there.
LIKELY: dict[str, Any] = {
    "name": {"enum": ["haiku", "limerick"]},
    "version": {"enum": [1, 2, 3]},
    "alias": {"enum": ["default", "canary"]},
    "model": {"enum": ["haiku", "haiku:1", "haiku@default", tiny_model.MODEL_ID, "limerick"]},
    "engine_id": {"enum": ["engine-0", "engine-1"]},
}

# Null in a path is the word "null", which an alias may be called, and false among texts of a query is the word "false".
# A deleted import is a cancelled one from then on, a deleted key a revoked one.
CONFIG = """
[[operations]]
include-path-regex = "/aliases/"
checks.negative_data_rejection.enabled = false

[[operations]]
include-name = "GET /v1/fine_tuning/jobs"
checks.negative_data_rejection.enabled = false

[[operations]]
include-path-regex = "^/(v1/imports|admin/v1/admin-keys|admin/v1/keys)/"
checks.use_after_free.enabled = false
"""

# What a schema cannot express makes good requests bad: a prompt that fits the context, fields that go together. The
# second use of an `Idempotency-Key` gets the first one's 201, even if what it created has been deleted since.
EXCLUDED = "positive_data_acceptance,ensure_resource_availability"


@pytest.fixture
async def engine(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    async with stub_engine(tokenizer, max_model_len=1024, chat_template=tiny_model.TOOLS_TEMPLATE) as stub:
        yield stub


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with names that exist, or nearly."""
    document = copy.deepcopy(document)
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and parameter["name"] in LIKELY:
                    parameter["schema"] = LIKELY[parameter["name"]]
    for name, schema in document["components"]["schemas"].items():
        if name.endswith("Request"):
            schema["properties"]["model"] = LIKELY["model"]
    return document


class Schemathesis:
    """Runs schemathesis on a gateway whose tenant has an adapter."""

    def __init__(self, gateway: Gateway, document: Path) -> None:
        self._gateway = gateway
        self._document = document

    async def __call__(self, key: str, paths: str, *options: str) -> None:
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", str(self._document),
            "--url", self._gateway.base_url, "--header", f"Authorization: Bearer {key}", "--include-path-regex", paths,
            "--exclude-checks", EXCLUDED, "--continue-on-failure", "--no-color", "--warnings", "off",
            "--request-timeout", "120",  # of seconds: a busy machine is not a defect
            *options,
        ]  # fmt: skip
        program = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._document.parent,
            env={**os.environ, "COLUMNS": "200"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await program.communicate()
        assert program.returncode == 0, said.decode()[-8000:]


@pytest.fixture
async def schemathesis(gateway: Gateway, config: GatewayConfig, tmp_path: Path, upload: Any) -> Schemathesis:
    for seed in range(2):
        await upload("haiku", seed=seed)
    path = tmp_path / "fuzzed" / "openapi.json"
    path.parent.mkdir()
    path.with_name("schemathesis.toml").write_text(CONFIG)
    path.write_text(json.dumps(narrowed(closed(openapi_document(create_app(config))))))
    return Schemathesis(gateway, path)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_much_of_everything(schemathesis: Schemathesis, gateway: Gateway) -> None:
    """Every boundary of every field, then many random requests, as the tenant, as its administrator and as the
    operator.
    """
    async with gateway.admin() as admin:
        made = await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json={"scopes": ["all", "admin"]})
    for key, paths in ((gateway.key, TENANTS), (made.json()["secret"], OPERATORS), (ADMIN_KEY, OPERATORS)):
        await schemathesis(key, paths, "--max-examples", "100")
