"""The commands and programs that docs/ shows, run page by page as written against a real server.

The README's have tests of their own: test_readme.py and test_demo.py.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from certificates import Authority
from cryptography.hazmat.primitives import serialization
from page_reader import Reader, variables
from running_server import ADMIN_KEY, RunningServer, clean_environment, client, ok, upload
from signed_adapters import new_key, write_public_key
from snippets import NOT_RUN, ROOT, Block, blocks
from tiny_models import add_adapter, add_classifier

from tests.e2e.conftest import Tiny
from tests.gateway.fake_hub import COMMIT, fake_hub

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PLACEHOLDERS = {
    "lg-admin-…": ADMIN_KEY,
    "ftjob-…": "$(new-job)",
    "cancel batch_…": "cancel $(long-batch)",
    "batch_…": "$(new-batch)",
    "@8f3c…": f"@{COMMIT}",
    "my-base": "my-model",
}
PROGRAMS = ("grpcurl", "model_signing")  # which are not installed with the tests'
RUN = [
    block
    for block in blocks("console", "python")
    if block.page.startswith("docs/") and not any(block.beginning.startswith(beginning) for beginning, _, _ in NOT_RUN)
]


def needed_program(block: Block) -> str:
    """Return which of PROGRAMS a block needs; "" if none."""
    return next((program for program in PROGRAMS if block.text.startswith(f"$ {program} ")), "")


def examples(count: int) -> str:
    chat = {"messages": [{"role": "user", "content": "fox"}, {"role": "assistant", "content": "jumps"}]}
    return f"{json.dumps(chat)}\n" * count


def requests(count: int) -> str:
    chat = {"model": "my-model", "messages": [{"role": "user", "content": "fox"}], "max_tokens": 32}
    line = {"method": "POST", "url": "/v1/chat/completions", "body": chat}
    return "".join(f"{json.dumps(line | {'custom_id': str(number)})}\n" for number in range(count))


@pytest.fixture(scope="module")
def files(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that pages name."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(tiny.base, folder / "my-model")
    adapters = ("outputs/support-bot", "outputs/checkpoint-800", "support-bot", "support", "repo", "adapters/support")
    for seed, name in enumerate(adapters):
        add_adapter(tiny.model, folder / name, seed, r=4)
    add_classifier(tiny.model, folder / "topics", 6, 2, id2label={"0": "billing", "1": "technical"})
    for name in ("support", "first", "more"):
        (folder / f"{name}.jsonl").write_text(examples(16))
    shutil.copy(ROOT / "examples" / "topics.jsonl", folder)
    for name, count in (("requests", 4), ("many", 2000)):
        (folder / f"{name}.jsonl").write_text(requests(count))
    authority = Authority()
    authority.write(folder / "fullchain.pem", folder / "privkey.pem", "localhost")
    (folder / "clients.pem").write_bytes(authority.pem)
    release = new_key()
    write_public_key(folder / "acme.pub", release)
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "release.pem").write_bytes(release.private_bytes(*pem))
    return folder


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the commands that pages run: curl fails where the server rejects a request, and two stand
    for what only the reader has."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in {
        "loragate": f'exec {sys.executable} -m loragate.cli.main "$@"',
        "curl": f'exec {shutil.which("curl")} --fail-with-body "$@"',
        "make-examples": "cat support.jsonl",
        "new-job": "loragate finetune create support.jsonl --no-watch",
        "new-batch": "loragate batches create requests.jsonl --no-watch",
        "long-batch": "loragate batches create many.jsonl --no-watch",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def hub(files: Path) -> Iterator[str]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(fake_hub()) as offering:
        offering.offer("acme/support-bot", files / "support-bot")
        yield offering.url


@pytest.fixture(scope="module")
def shared(files: Path, hub: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    signers = [{"name": "acme-release", "public_key": str(files / "acme.pub")}]
    running = RunningServer(
        tmp_path_factory.mktemp("data"), "--model", str(files / "my-model"), LORAGATE_IMPORTS__HUB=hub,
        LORAGATE_FINETUNE__ENABLED="true", LORAGATE_SIGNATURES__SIGNERS=json.dumps(signers),
        LORAGATE_SIGNATURES__TRUST_FINE_TUNING="true", LORAGATE_RESPONSES__STORE="true",
        LORAGATE_MERGED_EXPORTS="true",
    )  # fmt: skip
    yield running
    running.stop()


@pytest.fixture(scope="module")
def acme(shared: RunningServer, files: Path) -> Iterator[dict[str, str]]:
    """Yield the variables of a tenant with the adapters that pages name. None of its jobs may fail."""
    given = variables(shared, "acme")
    with client(shared.base_url, given["KEY"]) as tenant:
        for name in ("french", *["support"] * 4):
            ok(upload(tenant, name, files / "support"))
        ok(upload(tenant, "topics", files / "topics"))
        yield given
        assert not [job for job in ok(tenant.get("/v1/fine_tuning/jobs"))["data"] if job["status"] == "failed"]


@pytest.fixture
def reader(
    files: Path, programs: Path, hub: str, shared: RunningServer, acme: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Reader]:  # fmt: skip
    folder = shutil.copytree(files, tmp_path / "folder")
    monkeypatch.chdir(folder)
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "LORAGATE_IMPORTS__HUB": hub}
    reader = Reader(folder, shared, clean_environment() | acme | path, PLACEHOLDERS)
    yield reader
    reader.stop()


@pytest.mark.parametrize("page", sorted({block.page for block in RUN}))
def test_a_page(page: str, reader: Reader) -> None:
    for block in RUN:
        if block.page == page and not needed_program(block):
            reader.run(block)


@pytest.mark.parametrize("program", PROGRAMS)
def test_blocks_that_need(program: str, reader: Reader) -> None:
    needing = [block for block in RUN if needed_program(block) == program]
    assert needing
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    for block in needing:
        reader.run(block)
