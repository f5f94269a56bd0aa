"""`loragate secrets`, on a real database and data directory."""

import asyncio
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from loragate.adapter_store.auth.secret_key import secret_id
from loragate.adapter_store.auth.secret_key_file import add_secret_key
from loragate.adapter_store.database.schema import upgrade
from loragate.adapter_store.store import Store
from loragate.cli.data_dir.preparation import make_data_dir, prepare_store, secret_keys
from loragate.cli.errors import CliError
from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor.child_commands import Programs
from loragate.cli.supervisor.serve import serve
from tests.cli.command_runner import run

Start = Callable[[], None]
OLD, NEW = "the old secret key", "the new secret key"


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database to copy, because migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "loragate.db"
    asyncio.run(upgrade(f"sqlite:///{path}"))
    return path


@pytest.fixture
def start(migrated: Path) -> Start:
    """Returns a function that prepares the store as a server does at its start."""

    def started() -> None:
        settings = load()
        make_data_dir(settings)
        if not (settings.data_dir / "loragate.db").exists():
            shutil.copy(migrated, settings.data_dir / "loragate.db")
        asyncio.run(prepare_store(settings))

    return started


def in_store(work: Any) -> Any:
    """Run `work` on the store, opened with the present settings."""

    async def opened() -> Any:
        settings = load()
        keys = secret_keys(settings)
        urls = settings.effective_database_url, settings.effective_blob_url
        store = await Store.open(*urls, keys.primary, previous_secret_keys=keys.previous)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(opened())


async def new_key(store: Store) -> str:
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("acme")
        return (await admin.keys.create(tenant.id)).secret


async def use(store: Store, *keys: str) -> list[bool]:
    found = [await store.authenticate(key) is not None for key in keys]
    await store.renew_key_hashes()
    return found


def listed() -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in json.loads(run("secrets", "list", "--json").stdout)}


def test_a_rotation_in_the_data_directory(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    monkeypatch.setenv("LORAGATE_ADMIN_KEY", "chosen by the operator himself")
    start()
    key = in_store(new_key)
    [old] = listed()
    assert listed()[old]["api_keys"] == listed()[old]["admin_keys"] == 1

    rotated = run("secrets", "rotate")
    assert rotated.stdout == "", "the secret is in the file and nowhere else"
    assert f"loragate secrets retire {old}" in rotated.stderr
    new = next(iter(listed()))
    found = [(each["state"], each["is_current"]) for each in listed().values()]
    assert found == [("primary", False), ("accepted", True)]
    assert old in run("secrets", "retire", old, "--force", status=1).stderr, "servers still use it"

    start()
    assert listed()[new]["is_current"]
    assert (listed()[old]["api_keys"], listed()[old]["admin_keys"]) == (1, 0), "a start moves the given admin key"
    rejected = run("secrets", "retire", old, status=1).stderr
    assert "(API keys: 1, admin keys: 0)" in rejected
    assert "--force" in rejected
    assert in_store(lambda store: use(store, key)) == [True]
    assert listed()[old]["api_keys"] == 0
    assert "retired" in run("secrets", "retire", old).stdout
    assert list(listed()) == [new]
    assert in_store(lambda store: use(store, key, "chosen by the operator himself")) == [True, True]
    secrets = Path(".loragate/secret_key").read_text().split()
    assert [secret_id(each.encode()) for each in secrets] == [new]


def test_force_says_which_keys_it_revokes(start: Start) -> None:
    start()
    key = in_store(new_key)
    [old] = listed()
    run("secrets", "rotate")
    start()
    said = run("secrets", "retire", old, "--force").stdout
    assert f"Revoked API keys (1): {key.split('-')[1]}." in said
    assert "(1) may stop working" in said, "the admin key that the first start made"
    assert in_store(lambda store: use(store, key)) == [False]


def test_replicas_get_a_new_secret_by_their_settings(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    monkeypatch.setenv("LORAGATE_SECRET_KEY", OLD)
    start()
    key = in_store(new_key)
    rotated = run("secrets", "rotate")
    assert len(rotated.stdout.strip()) == 64
    assert secret_id(rotated.stdout.strip().encode()) in rotated.stderr
    for step in ("1. Add the new one to LORAGATE_PREVIOUS_SECRET_KEYS", "2. Set LORAGATE_SECRET_KEY", "3. A day later"):
        assert step in rotated.stderr
    assert not Path(".loragate/secret_key").exists()

    monkeypatch.setenv("LORAGATE_PREVIOUS_SECRET_KEYS", NEW)
    start()
    assert [each["is_current"] for each in listed().values()] == [True, False]
    monkeypatch.setenv("LORAGATE_SECRET_KEY", NEW)
    monkeypatch.setenv("LORAGATE_PREVIOUS_SECRET_KEYS", OLD)
    start()
    assert in_store(lambda store: use(store, key)) == [True]
    said = run("secrets", "retire", secret_id(OLD.encode()), "--force").stdout
    assert "Remove it from LORAGATE_PREVIOUS_SECRET_KEYS" in said


def test_an_unknown_secret_and_a_folder_without_a_server_are_named(start: Start) -> None:
    for command in (("list",), ("rotate",), ("retire", "0" * 12)):
        assert "--data-dir" in run("secrets", *command, status=1).stderr
    assert not Path(".loragate").exists(), "nothing is created"
    start()
    [old] = listed()
    assert old in run("secrets", "retire", "0" * 12, status=1).stderr


@pytest.fixture
def signals_restored() -> Iterator[None]:
    """Restores the handlers of the signals that `serve` ignores at its end, which processes of later tests inherit."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_restored")
async def test_the_processes_of_a_server_keep_the_secrets_of_its_start() -> None:
    """A gateway that is restarted alone would make keys that the others reject."""
    began: list[Settings] = []

    def make_programs(settings: Settings, *ports: Any) -> NoReturn:
        began.append(settings)
        raise CliError("this is enough of a start")

    ports = {"port": 0, "grpc_port": 0, "panel": {"enabled": False}}
    with pytest.raises(CliError, match="enough"):
        await serve(load(model="any", **ports), make_programs)
    at_start = secret_keys(load())
    add_secret_key(load().data_dir)
    environment = Programs(began[0], "unix:/engine.sock", 3, "127.0.0.1:50051").gateway().environment
    assert environment["LORAGATE_SECRET_KEY"].encode() == at_start.primary
    assert secret_keys(load()).previous == (at_start.primary,), "for the next start"
