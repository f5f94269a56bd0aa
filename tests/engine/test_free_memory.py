"""What a machine's memory has left."""

import os
from pathlib import Path

import psutil
import pytest

from loragate.engine import free_memory
from loragate.engine.free_memory import free_host_memory


def test_what_files_take_of_memory_can_be_had() -> None:
    assert free_host_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_system_that_does_not_tell_has_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "_LINUX", tmp_path / "none")
    assert 0 < free_host_memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
