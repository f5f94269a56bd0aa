from pathlib import Path

import pytest

from loragate.cli.data_dir.preparation import make_data_dir
from loragate.cli.settings.load import load


@pytest.mark.parametrize(("before", "after"), [(None, 0o700), (0o755, 0o750), (0o777, 0o770), (0o2775, 0o2770)])
def test_others_lose_access_to_the_data_directory(tmp_path: Path, before: int | None, after: int) -> None:
    folder = tmp_path / "data"
    if before is not None:
        folder.mkdir()
        folder.chmod(before)
    make_data_dir(load(data_dir=folder))
    assert folder.stat().st_mode & 0o7777 == after
