"""Which server gets which key: a folder that somebody else wrote must get none of the user's."""

import json
import os
from pathlib import Path

import pytest

from loragate.cli.client.http.connect import find_admin_key, find_api_key, find_server, key_from
from loragate.cli.data_dir import runtime_file
from loragate.cli.data_dir.lock import lock_data_dir
from loragate.cli.data_dir.runtime_file import Pids, Runtime
from loragate.cli.errors import CliError
from loragate.cli.settings.load import load

EVIL = "http://evil.example"
GOOD = "http://good.example"
KEY = "a key of the user's, 24 characters"
FOLDERS_KEY = "a key of the folder's, 24 characters"


def connection(**options: str) -> tuple[str, str]:
    """The server and the admin key that a command in this folder uses; the same holds for tenants' keys."""
    settings = load(**options)
    server = find_server(settings, options)
    key = find_admin_key(settings, options, server)
    assert api_key(**options).removeprefix("lg-") == key
    return server.base_url, key


def api_key(**options: str) -> str:
    settings = load(**options)
    return find_api_key(settings, options, find_server(settings, options))


def refusal(**options: str) -> str:
    """Why neither key is sent."""
    with pytest.raises(CliError) as caught:
        connection(**options)
    with pytest.raises(CliError):
        api_key(**options)
    return caught.value.message


@pytest.fixture
def users_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_ADMIN_KEY", KEY)
    monkeypatch.setenv("LORAGATE_API_KEY", KEY)


def write_folder(**settings: str) -> None:
    Path("loragate.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))


def write_running(url: str, folder: Path = Path(".loragate")) -> Path:
    folder.mkdir(exist_ok=True)
    runtime_file.write(folder, Runtime(url, Pids(1, (), None)))
    return folder


@pytest.mark.usefixtures("users_keys")
def test_a_folders_server_gets_no_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(base_url=EVIL)
    assert "named by ./loragate.toml only" in refusal()
    monkeypatch.setenv("LORAGATE_BASE_URL", GOOD)
    assert connection() == (GOOD, KEY)
    assert connection(base_url=EVIL) == (EVIL, KEY), "the user has named it"


def test_a_folders_server_gets_no_key_of_the_command_line() -> None:
    write_folder(base_url=EVIL)
    assert "not sent there" in refusal(admin_key=KEY, api_key=KEY)


def test_a_folders_server_gets_no_key_of_openais(monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(base_url=EVIL, admin_key=FOLDERS_KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{GOOD}/v1")
    assert "no API key" in refusal()


def test_a_folders_server_gets_the_folders_keys() -> None:
    write_folder(base_url=GOOD, admin_key=FOLDERS_KEY, api_key=FOLDERS_KEY)
    assert connection() == (GOOD, FOLDERS_KEY)


def test_a_folders_server_gets_no_demo_keys_of_a_named_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    demo = {"admin_key": KEY, "tenants": [{"api_key": f"lg-{KEY}"}]}
    (tmp_path / "mine" / "demo.json").write_text(json.dumps(demo))
    write_folder(base_url=EVIL)
    monkeypatch.setenv("LORAGATE_DATA_DIR", str(tmp_path / "mine"))
    assert "not sent there" in refusal()
    assert connection(base_url=GOOD) == (GOOD, KEY)


@pytest.mark.usefixtures("users_keys")
def test_a_file_that_the_user_names_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(base_url=GOOD)
    monkeypatch.setenv("LORAGATE_CONFIG", "loragate.toml")
    assert connection() == (GOOD, KEY)


@pytest.mark.usefixtures("users_keys")
def test_a_server_that_runs_in_the_folder_gets_the_users_keys() -> None:
    with lock_data_dir(write_running("http://127.0.0.1:8000")):
        assert connection() == ("http://127.0.0.1:8000", KEY)


@pytest.mark.usefixtures("users_keys")
def test_a_runtime_file_without_its_server_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive can hold the file, and a lock that anybody could open, but no running process."""
    folder = write_running(EVIL)
    assert "no server runs in" in refusal()
    with lock_data_dir(folder):
        assert connection() == (EVIL, KEY)
        (folder / "lock").chmod(0o644)
        assert "no server runs in" in refusal()
    (folder / "lock").unlink()
    monkeypatch.setenv("LORAGATE_DATA_DIR", str(folder))
    assert connection() == (EVIL, KEY), "the user has named the folder"


@pytest.mark.parametrize("name", ["loragate.toml", ".loragate", ".loragate/runtime.json"])
@pytest.mark.usefixtures("users_keys")
def test_what_others_can_write_is_not_read(name: str) -> None:
    if name == "loragate.toml":
        write_folder(base_url=GOOD)
    with lock_data_dir(write_running(GOOD)):
        Path(name).chmod(0o777 if Path(name).is_dir() else 0o606)
        assert f"chmod go-w {Path(name).absolute() if name != 'loragate.toml' else name}" in refusal()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_others_is_not_read() -> None:
    write_folder(base_url=GOOD)
    os.chown("loragate.toml", 12345, 0)
    with pytest.raises(CliError, match="belongs to another user"):
        load()
    assert load(config=Path("loragate.toml")).base_url == GOOD


def test_a_group_with_the_users_number_is_the_user() -> None:
    write_folder(base_url=GOOD)
    Path("loragate.toml").chmod(0o664)
    if Path("loragate.toml").stat().st_gid == os.geteuid():
        assert load().base_url == GOOD
    else:
        with pytest.raises(CliError, match="other users can write"):
            load()


def test_keys_from_files_are_in_no_command_line(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    assert key_from(f"@{tmp_path}/key") == KEY
    assert (key_from(KEY), key_from(None)) == (KEY, None)
    with pytest.raises(CliError, match="cannot be read"):
        key_from("@missing")
