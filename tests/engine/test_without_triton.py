"""The engine runs without Triton, which PyTorch's builds for CPUs and for macOS do not bring."""

import subprocess
import sys

# A module that is None in sys.modules cannot be imported, and `find_spec` does not find it.
CODE = """
import sys
sys.modules["triton"] = None
import loragate.engine.server.server
from loragate.kernels import gpu
assert not gpu.available()
"""


def test_the_engine_is_imported_without_triton() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
