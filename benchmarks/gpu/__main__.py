"""All that wants a GPU, in one command: check every kernel against its reference, time them, serve an 8B model.

    python -m benchmarks.gpu --out benchmarks/results/                 # all stages
    python -m benchmarks.gpu --out benchmarks/results/ --stage time    # one of them; each fits ten minutes
    python -m benchmarks.gpu --out /tmp/out --interpret --tiny         # without a GPU: that the script itself runs

Needs torch, triton, transformers, peft, grpcio and what these need; the project need not be installed. A stage writes
what it has after each case; a case that fails is told there and at the end, and the others go on.

`check` (check.py) fails if a kernel is wrong. `time` (timing.py) tunes and times the kernels beside torch, and
says what share of the memory's speed, measured in the same run, they reach. `answers` (parity.py) compares tokens
with PEFT's. `serve` (serve.py) measures our engine over random weights, alone and with few and many adapters,
beside PEFT's mixed batch; `cold` (adapter_load.py) what an adapter that is not on the device costs whom.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from benchmarks.lib import checkout

if not checkout.installed():
    checkout.find_parts()
os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is to be had from there, and looking takes time
if "--interpret" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

from benchmarks.gpu import adapter_load, check, parity, serve, timing
from benchmarks.gpu.cases import FULL, TINY, Setting
from benchmarks.lib.partial_results import Findings
from benchmarks.lib.report import about, gpu_state
from loragate.kernels import gpu

STAGES = {
    "check": check.check,
    "time": timing.measure,
    "answers": parity.compare,
    "serve": serve.serve,
    "cold": adapter_load.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_<stage>.json")
    parser.add_argument("--stage", choices=list(STAGES), action="append", help="default: all")
    parser.add_argument("--work", type=Path, default=Path("build"), help="folder for models, which later runs find")
    parser.add_argument("--interpret", action="store_true", help="run the kernels in Triton's interpreter, on the CPU")
    parser.add_argument("--tiny", action="store_true", help="sizes that the interpreter gets through")
    arguments = parser.parse_args()
    if arguments.interpret:
        gpu.serves = lambda device: True
    sizes, folder = (TINY, "gpu-tiny") if arguments.tiny else (FULL, "gpu")
    setting = Setting("cpu" if arguments.interpret else "cuda", sizes, arguments.work / folder)
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    for stage in arguments.stage or STAGES:
        path = arguments.out / f"gpu_{stage}.json"
        above = about(f"gpu_{stage}") | {"gpu_before": gpu_state()}
        found = Findings(path, lambda above=above: above | {"gpu_after": gpu_state()}, setting.free)
        found.run(partial(STAGES[stage], setting, found))
        failed |= {f"{stage}: {case}": why for case, why in found.failures.items()}
        print(f"{stage}: written to {path}", flush=True)
    for case, why in failed.items():
        print(f"FAILED {case}: {why}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
