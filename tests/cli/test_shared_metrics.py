"""Where the supervisor has several workers keep their counters."""

import stat
from pathlib import Path

from loragate.cli.settings import Settings
from loragate.cli.supervisor import shared_metrics
from loragate.cli.supervisor.programs import Programs

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def test_several_workers_begin_with_an_empty_private_folder(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, workers=2, model="any")
    for _ in range(2):
        shared_metrics.begin(settings)
        folder = Path(Programs(settings, "unix:x", 0, "127.0.0.1:0").gateway().environment[VARIABLE])
        assert list(folder.iterdir()) == [], "the counters of the last start are gone"
        assert folder.is_absolute()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "counter_1.db").touch()
    assert VARIABLE not in Programs(settings, "unix:x", 0, "127.0.0.1:0").engine("any").environment


def test_a_single_worker_needs_none(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, workers=1, model="any")
    shared_metrics.begin(settings)
    assert VARIABLE not in Programs(settings, "unix:x", 0, "127.0.0.1:0").gateway().environment
    assert list(tmp_path.iterdir()) == []
