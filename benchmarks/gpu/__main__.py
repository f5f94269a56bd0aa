"""All GPU checks and benchmarks: kernels against their references, kernel times, and serving of an 8B model.

    python -m benchmarks.gpu --out benchmarks/results/                 # all stages
    python -m benchmarks.gpu --out benchmarks/results/ --stage time    # one stage; each takes less than ten minutes
    python -m benchmarks.gpu --out /tmp/out --interpret --tiny         # without a GPU: a test of the script itself

It needs torch, triton, transformers, peft, grpcio and their dependencies; the project need not be installed. A stage
writes its results after each case; a failing case is reported there and at the end, and the others still run.

`warm` (warm_up.py) compiles the kernels in parallel, so that the other stages find them in Triton's cache
(TRITON_CACHE_DIR). `check` (check.py) fails if a kernel is wrong. `time` (timing.py) measures the kernels as they are
served and with other tilings, compares them with torch, and reports their share of the memory bandwidth measured in the
same run. `answers` (parity.py) compares tokens with PEFT's, `graphs` (recordings.py) those of recorded steps with those
of launched ones. `profile` (replay_profile.py) lists the kernels of one step with their times.
`serve` (serve.py) measures our engine with random weights, with no, few and many adapters, and PEFT's mixed batch.
`options` (options.py) measures steps with each option that is off until a GPU has decided.
`cold` (adapter_load.py) measures the cost of loading an adapter to the device, for its request and for others.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from benchmarks.lib import checkout

if not checkout.installed():
    checkout.find_parts()
os.environ["HF_HUB_OFFLINE"] = "1"  # no network access, and attempts take time
if "--interpret" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

from benchmarks.gpu import adapter_load, check, options, parity, recordings, replay_profile, serve, timing, warm_up
from benchmarks.gpu.cases import FULL, TINY, Setting
from benchmarks.lib.partial_results import PartialResults
from benchmarks.lib.report import about, gpu_state
from loragate.kernels import gpu

STAGES = {
    "warm": warm_up.compile_in_parallel,
    "check": check.check,
    "time": timing.measure,
    "answers": parity.compare,
    "graphs": recordings.compare,
    "profile": replay_profile.profile,
    "serve": serve.serve,
    "options": options.measure,
    "cold": adapter_load.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_<stage>.json")
    parser.add_argument("--stage", choices=list(STAGES), action="append", help="stage to run; may repeat; default: all")
    parser.add_argument("--only", default="", help="run only the cases whose names contain this")
    parser.add_argument("--work", type=Path, default=Path("build"), help="folder for models, which later runs reuse")
    parser.add_argument("--interpret", action="store_true", help="run the kernels in Triton's interpreter, on the CPU")
    parser.add_argument("--tiny", action="store_true", help="use sizes small enough for the interpreter")
    arguments = parser.parse_args()
    if arguments.interpret:
        gpu.serves = lambda device: True
    sizes, folder = (TINY, "gpu-tiny") if arguments.tiny else (FULL, "gpu")
    setting = Setting("cpu" if arguments.interpret else "cuda", sizes, arguments.work / folder, arguments.out)
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    for stage in arguments.stage or STAGES:
        path = arguments.out / f"gpu_{stage}.json"
        header = about(f"gpu_{stage}") | {"gpu_before": gpu_state()}
        results = PartialResults(
            path, lambda header=header: header | {"gpu_after": gpu_state()}, setting.free, arguments.only
        )
        results.run(partial(STAGES[stage], setting, results))
        failed |= {f"{stage}: {case}": error for case, error in results.failures.items()}
        print(f"{stage}: written to {path}", flush=True)
    for case, error in failed.items():
        print(f"FAILED {case}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
