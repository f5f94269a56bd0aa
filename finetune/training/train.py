"""A run from its beginning, or from its newest checkpoint, to its end."""

from collections.abc import Callable
from pathlib import Path

from peft import PeftModel
from transformers import PreTrainedTokenizerBase, PrinterCallback

from loragate.finetune.data.formats import Method
from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.checkpoints.folders import checkpoints_in
from loragate.finetune.training.trainers.callback import RunCallback, TrainingFailed
from loragate.finetune.training.trainers.dpo import preference_trainer
from loragate.finetune.training.trainers.sft import supervised_trainer
from loragate.finetune.training.trainers.streaming_rows import StreamingRows
from loragate.finetune.training.trainers.trainer_arguments import Run

_NOTHING = "In no example anything is left to learn: all of them are longer than `max_length`."


def train(
    model: PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    recipe: Recipe,
    run: Run,
    watch: RunCallback,
    written: Callable[[Path], None] = lambda _: None,
) -> int:
    """To the end, or until `watch` stops it; afterwards `model` has the best adapter, or the last. The steps done.

    `written` hears of each checkpoint that is on the disk, from another thread. Raises TrainingFailed, OSError when
    the disk is full.
    """
    growing = run.train if isinstance(run.train, StreamingTokenFile) else None
    if growing is None and not len(run.train):
        raise TrainingFailed(_NOTHING)
    make = supervised_trainer if recipe.method is Method.SUPERVISED else preference_trainer
    try:
        trainer = make(model, tokenizer, recipe, run, watch)
    except ValueError as refused:  # as TRL does adapters of the head, which an adapter to go on from may have
        raise TrainingFailed(f"There is no such training: {refused}") from refused
    trainer.remove_callback(PrinterCallback)
    for parameter in model.parameters():
        if parameter.requires_grad:  # TRL makes them bf16 on a quantised base, in which small steps are lost
            parameter.data = parameter.data.float()
    trainer.start_checkpoint_writer(written)
    if growing is not None:
        pairs = recipe.method is Method.DPO
        rows = StreamingRows(growing, pairs=pairs, epochs=recipe.epochs, seed=recipe.seed, pause=watch.pause)
        trainer.follow(rows, recipe.batch_size)
    done = checkpoints_in(run.folder)
    try:
        trainer.train(resume_from_checkpoint=str(done[-1]) if done else None)
    finally:
        trainer.writer.wait()
    if growing is not None and growing.closed and not len(growing):
        raise TrainingFailed(_NOTHING)
    return int(trainer.state.global_step)
