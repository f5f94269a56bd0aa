"""Supervised fine-tuning on TRL's SFTTrainer, on rows that are tokens already."""

from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedTokenizerBase
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from loragate.finetune.data.streaming_token_file import GrowingTokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.trainers.callback import Watch
from loragate.finetune.training.trainers.reporting import reporting
from loragate.finetune.training.trainers.resumable_trainer import Resumable
from loragate.finetune.training.trainers.rows import PackedRows, Rows, one_row, ragged_row
from loragate.finetune.training.trainers.streaming_trainer import STAND_IN, Streamed, stand_in
from loragate.finetune.training.trainers.trainer_arguments import Run, arguments, by_number, early_stopping, together


class SupervisedTrainer(Streamed, Resumable, SFTTrainer):
    """Samples go through the model side by side in one row, without padding."""


def supervised_trainer(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, run: Run, watch: Watch
) -> SupervisedTrainer:
    """Ready to train."""
    rows, longest = _rows(recipe, run)
    at_once = together(longest, recipe, run.row_tokens)
    return SupervisedTrainer(
        model=model,
        processing_class=tokenizer,
        args=SFTConfig(**arguments(recipe, run, at_once), dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=rows,
        eval_dataset=by_number(Rows(run.valid)) if run.valid is not None and run.validated else None,
        data_collator=one_row,
        callbacks=[watch, *early_stopping(recipe, run), *reporting(run.report_to, run.name)],
    )


def _rows(recipe: Recipe, run: Run) -> tuple[Dataset, int]:
    """As TRL takes them, and how many tokens the longest has."""
    if isinstance(run.train, GrowingTokenFile):
        return stand_in(ragged_row([STAND_IN])), recipe.max_length
    if recipe.packing:
        return by_number(PackedRows(run.train, recipe.max_length)), recipe.max_length
    return by_number(Rows(run.train)), int(run.train.lengths.max(initial=1))
