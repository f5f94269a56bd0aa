import subprocess
import sys
from pathlib import Path

import pytest

from loragate.cli.data_dir.lock import lock_data_dir
from loragate.cli.errors import CliError

HOLD = """
import sys
from pathlib import Path
from loragate.cli.data_dir.lock import lock_data_dir
with lock_data_dir(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_rejected_with_the_firsts_pid_until_that_dies(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CliError) as caught, lock_data_dir(tmp_path):
            pytest.fail("two holders")
        assert f"pid {holder.pid}" in caught.value.message
        assert str(tmp_path) in caught.value.message
        holder.kill()
        holder.wait()
    with lock_data_dir(tmp_path):
        pass


def test_the_lock_is_free_after_the_block(tmp_path: Path) -> None:
    for _ in range(2):
        with lock_data_dir(tmp_path):
            pass
