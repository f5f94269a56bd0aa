"""Runs one assignment and sends messages about it; `child` starts it once everything is imported."""

import json
import os
import threading
from pathlib import Path
from typing import TextIO

import torch
from peft import PeftModel
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from loragate.finetune.data.labels import LabelSet
from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.data.token_cache import label_facts
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.training.adapter import continued_adapter, new_adapter
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.checkpoints.checkpoint import read_trainer_state, save_adapter
from loragate.finetune.training.checkpoints.folders import checkpoints_in
from loragate.finetune.training.checkpoints.run_lock import acquire_run_lock
from loragate.finetune.training.memory import is_out_of_memory, limit_memory, set_oom_score
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.message_writer import MessageWriter
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


def run_assignment(commands: TextIO, out: MessageWriter) -> None:
    """Run the assignment on the first line of `commands` and write its messages, the outcome last, to `out`."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    assignment = Assignment.from_document(json.loads(commands.readline()))
    set_oom_score()
    if assignment.settings.idle_priority:
        set_idle_priority()
    torch.set_num_threads(assignment.settings.threads)
    stop = threading.Event()
    throttle = Throttle(assignment.settings.threads, stop)
    threading.Thread(target=read_commands, args=(commands, stop, throttle), daemon=True).start()
    try:
        out.send(_outcome(assignment, stop, throttle, out))
    except BrokenPipeError:
        os._exit(1)  # the worker is gone; work that was not reported is repeated


def _outcome(assignment: Assignment, stop: threading.Event, throttle: Throttle, out: MessageWriter) -> TrainerMessage:
    try:
        return _run(assignment, stop, throttle, out)
    except TrainingFailed as failed:
        return Failed("training_failed", str(failed))
    except (MemoryError, RuntimeError, OSError) as error:
        if is_out_of_memory(error):
            return Failed("out_of_memory", "The training ran out of memory: lower `batch_size` or `max_length`.")
        if isinstance(error, OSError):
            return Failed("insufficient_storage", f"The training files cannot be written: {error.strerror}.")
        raise


def _run(assignment: Assignment, stop: threading.Event, throttle: Throttle, out: MessageWriter) -> TrainerMessage:
    acquire_run_lock(assignment.folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if assignment.settings.memory_bytes is not None:
        limit_memory(assignment.settings.memory_bytes)
    streaming = assignment.recipe.streaming
    tokens = StreamingTokenFile(assignment.train) if streaming else TokenFile(assignment.train)
    facts = label_facts(tokens) if isinstance(tokens, TokenFile) else None
    model = _adapted_model(assignment, device, None if facts is None else LabelSet.of(facts))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(assignment.base)
    run = Run(
        folder=assignment.folder,
        train=tokens,
        valid=None if assignment.valid is None else TokenFile(assignment.valid),
        row_tokens=assignment.row_tokens,
        checkpoint_steps=assignment.checkpoint_steps,
        log_steps=1,
        report_to=assignment.settings.report_to,
        name=assignment.name,
    )
    for metrics in _earlier_metrics(assignment.folder):
        out.send(Stepped(metrics))
    callback = RunCallback(
        on_metrics=lambda metrics: out.send(Stepped(metrics)),
        stop=stop,
        throttle=throttle,
        on_waiting=lambda steps: out.send(Waiting(steps)),
    )
    done = train(model, tokenizer, assignment.recipe, run, callback, lambda folder: out.send(Checkpointed(folder.name)))
    if stop.is_set():
        return Stopped(done.steps)
    result = assignment.folder / "adapter"
    save_adapter(model, result)
    return Finished(done.steps, result.name, None if done.evaluation is None else done.evaluation.to_document())


def _earlier_metrics(folder: Path) -> list[Metrics]:
    done = checkpoints_in(folder)
    return recorded_metrics(read_trainer_state(done[-1])) if done else []


def _adapted_model(assignment: Assignment, device: torch.device, labels: LabelSet | None = None) -> PeftModel:
    base = load_base(assignment.base, assignment.recipe.quantization, device)
    torch.manual_seed(assignment.recipe.seed)
    if assignment.start is not None:
        return continued_adapter(base, assignment.recipe, assignment.start)
    try:
        return new_adapter(base, assignment.recipe, labels)
    except ValueError as error:
        raise TrainingFailed(f"This training is not supported: {error}") from error


def read_commands(commands: TextIO, stop: threading.Event, throttle: Throttle) -> None:
    """Pass loads to the throttle; set `stop` at any other command and at the end of the input."""
    for line in commands:
        word, _, load = line.partition(" ")
        if word != "load":
            break
        throttle.set_load(float(load))
    stop.set()
