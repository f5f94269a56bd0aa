"""A run as it is assigned, with all that it says: what `child` does once everything is loaded."""

import json
import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import torch
from peft import PeftModel
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.training.adapter import continued_adapter, new_adapter
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.checkpoints.checkpoint import read_trainer_state, save_adapter
from loragate.finetune.training.checkpoints.folders import checkpoints_in
from loragate.finetune.training.checkpoints.run_lock import acquire_run_lock
from loragate.finetune.training.memory import is_out_of_memory, limit_memory, set_oom_score
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import (
    Checkpointed,
    Failed,
    Finished,
    Metrics,
    Stepped,
    Stopped,
    TrainerMessage,
    Waiting,
)
from loragate.finetune.training.throttle import Throttle, set_idle_priority
from loragate.finetune.training.train import train
from loragate.finetune.training.trainers.callback import RunCallback, TrainingFailed, recorded_metrics
from loragate.finetune.training.trainers.trainer_arguments import Run


def work(orders: TextIO, out: TextIO) -> None:
    """The assignment is the first of the `orders`. Whatever becomes of it is told to `out`."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    assignment = Assignment.from_document(json.loads(orders.readline()))
    set_oom_score()
    if assignment.settings.idle_priority:
        set_idle_priority()
    torch.set_num_threads(assignment.settings.threads)
    stop = threading.Event()
    breather = Throttle(assignment.settings.threads, stop)
    threading.Thread(target=listen, args=(orders, stop, breather), daemon=True).start()
    try:
        _tell(out, _outcome(assignment, stop, breather, out))
    except BrokenPipeError:
        os._exit(1)  # nobody listens any more: what was not told is done again


def _outcome(assignment: Assignment, stop: threading.Event, breather: Throttle, out: TextIO) -> TrainerMessage:
    try:
        return _run(assignment, stop, breather, out)
    except TrainingFailed as failed:
        return Failed("training_failed", str(failed))
    except (MemoryError, RuntimeError, OSError) as error:
        if is_out_of_memory(error):
            return Failed("out_of_memory", "There was not enough memory for it: lower `batch_size` or `max_length`.")
        if isinstance(error, OSError):
            return Failed("insufficient_storage", f"The training's files cannot be written: {error.strerror}.")
        raise


def _run(assignment: Assignment, stop: threading.Event, breather: Throttle, out: TextIO) -> TrainerMessage:
    acquire_run_lock(assignment.folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if assignment.settings.memory_bytes is not None:
        limit_memory(assignment.settings.memory_bytes)
    model = _adapted(assignment, device)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(assignment.base)
    run = Run(
        assignment.folder,
        StreamingTokenFile(assignment.train) if assignment.recipe.streaming else TokenFile(assignment.train),
        None if assignment.valid is None else TokenFile(assignment.valid),
        assignment.row_tokens,
        assignment.checkpoint_steps,
        log_steps=1,
        report_to=assignment.settings.report_to,
        name=assignment.name,
    )
    for metrics in _told_before(assignment.folder):
        _tell(out, Stepped(metrics))
    watch = RunCallback(
        lambda metrics: _tell(out, Stepped(metrics)), stop, breather, lambda steps: _tell(out, Waiting(steps))
    )
    steps = train(model, tokenizer, assignment.recipe, run, watch, lambda folder: _tell(out, Checkpointed(folder.name)))
    if stop.is_set():
        return Stopped(steps)
    result = assignment.folder / "adapter"
    save_adapter(model, result)
    return Finished(steps, result.name)


def _told_before(folder: Path) -> list[Metrics]:
    done = checkpoints_in(folder)
    return recorded_metrics(read_trainer_state(done[-1])) if done else []


def _adapted(assignment: Assignment, device: torch.device) -> PeftModel:
    base = load_base(assignment.base, assignment.recipe.quantization, device)
    torch.manual_seed(assignment.recipe.seed)
    if assignment.start is not None:
        return continued_adapter(base, assignment.recipe, assignment.start)
    return new_adapter(base, assignment.recipe)


def listen(orders: TextIO, stop: threading.Event, breather: Throttle) -> None:
    """To the end of the orders, or to one that is none."""
    for line in orders:
        word, _, load = line.partition(" ")
        if word != "load":
            break
        breather.set_load(float(load))
    stop.set()


_telling = threading.Lock()


def _tell(out: TextIO, news: TrainerMessage) -> None:
    document: dict[str, Any] = {"kind": type(news).__name__, **asdict(news)}
    with _telling:
        out.write(json.dumps(document) + "\n")
        out.flush()
