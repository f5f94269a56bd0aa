"""Modules that a gateway process must not load: torch, which costs seconds and hundreds of megabytes, and the exporter
of traces, which is for gateways that have a collector."""

import subprocess
import sys

PROGRAM = """
import gc; gc.disable()  # imports create no garbage
import sys
import loragate.gateway.app, loragate.gateway.server
heavy = {"torch", "transformers", "peft", "triton", "datasets"}
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(heavy & loaded), [name for name in sys.modules if name.startswith("opentelemetry.exporter")])
"""


def test_a_gateway_imports_neither_torch_nor_the_exporter_of_traces() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"
