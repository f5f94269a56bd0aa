"""The data directory belongs to the user who runs the server."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from loragate.cli.data_dir.preparation import make_data_dir
from loragate.cli.settings.model import Settings


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("existing", [None, 0o755, 0o777, 0o700])
def test_it_and_all_that_is_written_is_private(
    tmp_path: Path, existing: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    if existing is not None:
        folder.mkdir()
        folder.chmod(existing)
    make_data_dir(Settings(data_dir=folder))
    (folder / "loragate.db").touch()
    (folder / "blobs").mkdir()
    assert (_mode(folder), _mode(folder / "loragate.db"), _mode(folder / "blobs")) == (0o700, 0o600, 0o700)
    assert ("was open to other users" in caplog.text) is (existing in (0o755, 0o777))
