import json
import stat
from pathlib import Path

import pytest

from loragate.cli.data_dir import runtime_file
from loragate.cli.data_dir.runtime_file import Pids, Running, RunningEngine, Runtime


def test_the_file_is_private_complete_and_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "runtime.json"
    runtime_file.write(tmp_path, Runtime("http://127.0.0.1:1", Pids(1, (2, 3), 4)))
    with path.open() as old:
        runtime_file.write(
            tmp_path,
            Runtime("http://127.0.0.1:2", Pids(1, (2, 3), 5), engines=(RunningEngine("engine-0", "unix:/e", 5),)),
        )
        assert json.load(old)["pids"]["engine"] == 4, "a reader keeps the file that it opened"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {
        "base_url": "http://127.0.0.1:2",
        "tls_cert": None,
        "client_cert": None,
        "grpc_target": None,
        "panel_url": None,
        "pids": {"supervisor": 1, "gateway": [2, 3], "engine": 5, "finetune": None, "trainer": None, "panel": None},
        "optional": {},
        "engines": [{"id": "engine-0", "target": "unix:/e", "pid": 5}],
    }
    assert [file.name for file in tmp_path.iterdir()] == ["runtime.json"]


def test_clients_find_the_address_only_while_the_file_exists(tmp_path: Path) -> None:
    runtime_file.write(tmp_path, Runtime("http://127.0.0.1:1", Pids(1, (), None)))
    assert runtime_file.read(tmp_path) == Running("http://127.0.0.1:1", None, None)
    runtime_file.remove(tmp_path)
    runtime_file.remove(tmp_path)
    assert runtime_file.read(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"base_url": 1}'])
def test_a_broken_file_means_no_server(tmp_path: Path, content: str) -> None:
    (tmp_path / "runtime.json").write_text(content)
    assert runtime_file.read(tmp_path) is None
