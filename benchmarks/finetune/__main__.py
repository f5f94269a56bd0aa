"""The cost and the effect of fine-tuning.

*methods*: QLoRA, LoRA and full fine-tuning of the demo's base model and of a larger one of random weights: losses and
peak memory, with the calculated shares of weights, gradients and optimizer state.
*claim*: a tenant of the demo teaches its model a style of answering with 200 examples, through the API alone: the share
of held-out questions answered in that style before and after, and the time that it took.

    python -m benchmarks.finetune               # both; minutes on two idle cores
    python -m benchmarks.finetune --only claim  # keeps the other's figures
"""

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.finetune import methods
from benchmarks.finetune.demo_server import DATA_DIR, demo_server
from benchmarks.finetune.style_dataset import evaluate, held_out, training_file
from benchmarks.lib.report import load_figures, write

HELD_OUT = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("methods", "claim"), help="measure this part; default: both")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="data directory of the demo's server")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of each method")
    arguments = parser.parse_args()
    figures = load_figures("finetune") if arguments.only else {}
    if arguments.only != "claim":
        figures["methods"] = methods.measure(arguments.threads)
        methods.show(figures["methods"])
    if arguments.only != "methods":
        figures["claim"] = claim(arguments.data_dir)
        Console().print(figures["claim"])
    print(f"written to {write('finetune', figures).relative_to(Path.cwd())}")


def claim(data_dir: Path) -> dict[str, Any]:
    """Fine-tune the demo's base model through the API; return the style's share before and after."""
    questions = held_out(HELD_OUT)
    with demo_server(data_dir) as server, Progress(console=Console(stderr=True)) as progress:
        client = server.client()
        base = client.models.list().data[0].id
        task = progress.add_task("asking", total=2 * len(questions))
        before = evaluate(client, base, questions, lambda: progress.advance(task))
        began = time.monotonic()
        file = client.files.create(file=("ledger.jsonl", training_file()), purpose="fine-tune")
        job = client.fine_tuning.jobs.create(model=base, training_file=file.id, suffix="ledger", seed=1)
        while job.finished_at is None:
            time.sleep(0.5)
            job = client.fine_tuning.jobs.retrieve(job.id)
            progress.update(task, description=job.status)
        seconds = time.monotonic() - began
        if job.fine_tuned_model is None:
            raise SystemExit(f"the job is {job.status}: {job.error}")
        progress.update(task, description="asking")
        after = evaluate(client, job.fine_tuned_model, questions, lambda: progress.advance(task))
    hyperparameters = json.loads(job.model_dump_json())["method"]["supervised"]["hyperparameters"]
    return {"seconds": seconds, "before": asdict(before), "after": asdict(after), "hyperparameters": hyperparameters}


if __name__ == "__main__":
    main()
