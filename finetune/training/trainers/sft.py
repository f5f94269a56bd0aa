"""Supervised fine-tuning on TRL's SFTTrainer, on rows that are already tokenized."""

from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedTokenizerBase
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.trainers.callback import RunCallback
from loragate.finetune.training.trainers.reporting import reporting_callbacks
from loragate.finetune.training.trainers.resumable_trainer import ResumableMixin
from loragate.finetune.training.trainers.rows import PackedRows, Rows, concatenate_rows, ragged_row
from loragate.finetune.training.trainers.streaming_trainer import PLACEHOLDER, StreamingMixin, placeholder_dataset
from loragate.finetune.training.trainers.trainer_arguments import (
    Run,
    early_stopping,
    lazy_dataset,
    micro_batch_rows,
    training_arguments,
)


class SupervisedTrainer(StreamingMixin, ResumableMixin, SFTTrainer):
    """Samples of a micro-batch are concatenated into one row, without padding."""


def supervised_trainer(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, run: Run, callback: RunCallback
) -> SupervisedTrainer:
    """Return a trainer that is ready to train."""
    rows, longest = _dataset(recipe, run)
    micro_batch = micro_batch_rows(longest, recipe, run.row_tokens)
    return SupervisedTrainer(
        model=model,
        processing_class=tokenizer,
        args=SFTConfig(**training_arguments(recipe, run, micro_batch), dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=rows,
        eval_dataset=lazy_dataset(Rows(run.valid)) if run.valid is not None and run.validated else None,
        data_collator=concatenate_rows,
        callbacks=[callback, *early_stopping(recipe, run), *reporting_callbacks(run.report_to, run.name)],
    )


def _dataset(recipe: Recipe, run: Run) -> tuple[Dataset, int]:
    """Return the rows as TRL expects them, and the tokens of the longest row."""
    if isinstance(run.train, StreamingTokenFile):
        return placeholder_dataset(ragged_row([PLACEHOLDER])), recipe.max_length
    if recipe.packing:
        return lazy_dataset(PackedRows(run.train, recipe.max_length)), recipe.max_length
    return lazy_dataset(Rows(run.train)), int(run.train.lengths.max(initial=1))
