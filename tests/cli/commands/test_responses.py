"""`loragate responses` against the real gateway."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from loragate.cli.errors import BAD_SETTING
from loragate.gateway.config.responses import ResponsesConfig
from tests.cli.command_runner import run
from tests.cli.conftest import SharedGateway
from tests.cli.running import real_gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.usefixtures("tenant")


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with real_gateway(folder, responses=ResponsesConfig(store=True)) as url:
        yield SharedGateway(url, folder)


def create(**fields: object) -> str:
    """Store a response; return its id."""
    headers = {"authorization": f"Bearer {os.environ['LORAGATE_API_KEY']}"}
    body = {"model": MODEL_ID, "input": "Hello.", "max_output_tokens": 4, "store": True, **fields}
    response = httpx.post(f"{os.environ['LORAGATE_BASE_URL']}/responses", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


def test_list_show_export_and_delete(tmp_path: Path) -> None:
    first, second, third = create(user="ann"), create(user="bob"), create(safety_identifier="ann")
    listed = run("responses", "list").stdout.splitlines()
    assert [line.split("\t")[0] for line in listed] == [third, second, first]
    assert json.loads(run("responses", "show", first).stdout)["user"] == "ann"
    file = tmp_path / "stored.jsonl"
    run("responses", "export", str(file))
    assert [json.loads(line)["response"]["id"] for line in file.read_text().splitlines()] == [first, second, third]
    assert "exists already" in run("responses", "export", str(file), status=BAD_SETTING).stderr
    assert run("responses", "delete-user", "ann", "--yes").stdout == "1\n"
    assert run("responses", "delete-user", "ann", "--safety-identifier", "--yes").stdout == "1\n"
    assert run("responses", "delete", second, "--yes").stdout == f"{second}\n"
    assert "does not exist" in run("responses", "show", second, status=1).stderr
    status = json.loads(run("responses", "status").stdout)
    assert (status["responses"], status["store_by_default"]) == (0, False)
    assert "scope" in run("responses", "status", "--by-default", status=1).stderr


def test_cancel() -> None:
    response = create(background=True)
    assert run("responses", "cancel", response).stdout.strip() in ("cancelled", "completed", "incomplete")
