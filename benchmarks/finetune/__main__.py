"""What fine-tuning costs and what it teaches.

*Ways*: QLoRA, LoRA and full fine-tuning, on the demo's base model and on a larger one of random weights: losses
and memory at its peak, beside what of it is weights, gradients and optimizer by arithmetic.
*Claim*: a tenant of the demo teaches its model a way of answering with 200 examples, through the API alone: how many of
the held-out questions are answered that way before and after, and how long it took.

    python -m benchmarks.finetune               # both: some minutes on two idle cores, once the demo is trained
    python -m benchmarks.finetune --only claim  # the other's figures stay as they are
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
from benchmarks.finetune.style_dataset import held_out, look, training_file
from benchmarks.lib.report import figures_of, write

HELD_OUT = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("ways", "claim"))
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="where the demo is, or will be trained")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each way")
    arguments = parser.parse_args()
    figures = figures_of("finetune") if arguments.only else {}
    if arguments.only != "claim":
        figures["ways"] = methods.measured(arguments.data_dir, arguments.threads)
        methods.show(figures["ways"])
    if arguments.only != "ways":
        figures["claim"] = claim(arguments.data_dir)
        Console().print(figures["claim"])
    print(f"written to {write('finetune', figures).relative_to(Path.cwd())}")


def claim(data_dir: Path) -> dict[str, Any]:
    """Through the API alone."""
    questions = held_out(HELD_OUT)
    with demo_server(data_dir) as server, Progress(console=Console(stderr=True)) as progress:
        client = server.client()
        base = client.models.list().data[0].id
        task = progress.add_task("asking", total=2 * len(questions))
        before = look(client, base, questions, lambda: progress.advance(task))
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
        after = look(client, job.fine_tuned_model, questions, lambda: progress.advance(task))
    chosen = json.loads(job.model_dump_json())["method"]["supervised"]["hyperparameters"]
    return {"seconds": seconds, "before": asdict(before), "after": asdict(after), "hyperparameters": chosen}


if __name__ == "__main__":
    main()
