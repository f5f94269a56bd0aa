"""One trainer in a folder: the next one waits, and kills one that does not end, but never another process."""

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loragate.finetune.training.checkpoints.run_lock import acquire_run_lock

HOLDER = """
import sys, time
from pathlib import Path
from loragate.finetune.training.checkpoints.run_lock import acquire_run_lock
acquire_run_lock(Path(sys.argv[1]))
print("there", flush=True)
time.sleep(float(sys.argv[2]))
"""


@contextmanager
def holder(folder: Path, seconds: float = 300) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(folder), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_trainer_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as stubborn:
        acquire_run_lock(tmp_path / "run", timeout=0.1)
        assert stubborn.wait(60) == -9


def test_a_trainer_that_is_about_to_end_is_awaited(tmp_path: Path) -> None:
    with holder(tmp_path / "run", seconds=0.2) as ending:
        acquire_run_lock(tmp_path / "run")
        assert ending.wait(60) == 0


def test_a_reused_process_id_is_not_killed(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock, holder(tmp_path / "elsewhere") as bystander:
        lock.write(str(bystander.pid))
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="does not end"):
            acquire_run_lock(tmp_path, timeout=0.1)
        assert bystander.poll() is None
