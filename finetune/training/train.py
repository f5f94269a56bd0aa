"""Trains a run from its newest checkpoint, or from the beginning, to its end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from peft import PeftModel
from transformers import PreTrainedTokenizerBase, PrinterCallback

from loragate.finetune.data.formats import Method
from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.checkpoints.folders import checkpoints_in
from loragate.finetune.training.trainers.callback import RunCallback, TrainingFailed
from loragate.finetune.training.trainers.classifier_metrics import Evaluation
from loragate.finetune.training.trainers.classify import ClassifierTrainer, classifier_trainer
from loragate.finetune.training.trainers.dpo import PreferenceTrainer, preference_trainer
from loragate.finetune.training.trainers.sft import SupervisedTrainer, supervised_trainer
from loragate.finetune.training.trainers.streaming_rows import StreamingRows
from loragate.finetune.training.trainers.trainer_arguments import Run

_MAKERS: Mapping[Method, Callable[..., SupervisedTrainer | PreferenceTrainer | ClassifierTrainer]] = {
    Method.SUPERVISED: supervised_trainer,
    Method.DPO: preference_trainer,
    Method.CLASSIFY: classifier_trainer,
}
_NOTHING_TO_LEARN = "There is nothing to learn: every example is longer than `max_length`."


@dataclass(frozen=True)
class Trained:
    """The steps that are done, and the evaluation of a classifier that was trained to its end on validated data."""

    steps: int
    evaluation: Evaluation | None = None


def train(
    model: PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    recipe: Recipe,
    run: Run,
    callback: RunCallback,
    on_written: Callable[[Path], None] = lambda _: None,
) -> Trained:
    """Train until the end, or until `callback` stops the run. `model` then has the best adapter if there was validation
    data, otherwise the last.

    `on_written` is called from another thread with each checkpoint that is complete. Raise TrainingFailed, and OSError
    when the disk is full.
    """
    streaming = run.train if isinstance(run.train, StreamingTokenFile) else None
    if streaming is None and not len(run.train):
        raise TrainingFailed(_NOTHING_TO_LEARN)
    try:
        trainer = _MAKERS[recipe.method](model, tokenizer, recipe, run, callback)
    except ValueError as error:  # for example TRL's for an adapter with trained heads, which a base adapter can have
        raise TrainingFailed(f"This training is not supported: {error}") from error
    trainer.remove_callback(PrinterCallback)
    for parameter in model.parameters():
        if parameter.requires_grad:  # TRL makes them bf16 on a quantized base, which loses small updates
            parameter.data = parameter.data.float()
    trainer.start_checkpoint_writer(on_written)
    if streaming is not None:
        assert not isinstance(trainer, ClassifierTrainer)
        pairs = recipe.method is Method.DPO
        rows = StreamingRows(streaming, pairs=pairs, epochs=recipe.epochs, seed=recipe.seed, pause=callback.pause)
        trainer.stream_rows(rows, recipe.batch_size)
    done = checkpoints_in(run.folder)
    try:
        trainer.train(resume_from_checkpoint=str(done[-1]) if done else None)
    finally:
        trainer.writer.wait()
    if streaming is not None and streaming.closed and not len(streaming):
        raise TrainingFailed(_NOTHING_TO_LEARN)
    evaluation = trainer.evaluation() if isinstance(trainer, ClassifierTrainer) and not callback.stopped else None
    return Trained(int(trainer.state.global_step), evaluation)
