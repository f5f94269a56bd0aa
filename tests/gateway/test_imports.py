"""Modules that a gateway process must not load: torch alone costs seconds and hundreds of megabytes."""

import subprocess
import sys

PROGRAM = """
import sys
import loragate.gateway.app, loragate.gateway.server
heavy = {"torch", "transformers", "peft", "triton", "datasets"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_gateway_imports_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
