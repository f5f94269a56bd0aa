"""Supervised fine-tuning on TRL's SFTTrainer, on rows that are tokens already."""

from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedTokenizerBase
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.trainers.callback import RunCallback
from loragate.finetune.training.trainers.reporting import reporting
from loragate.finetune.training.trainers.resumable_trainer import ResumableMixin
from loragate.finetune.training.trainers.rows import PackedRows, Rows, concatenate_rows, ragged_row
from loragate.finetune.training.trainers.streaming_trainer import PLACEHOLDER, StreamingMixin, placeholder_dataset
from loragate.finetune.training.trainers.trainer_arguments import Run, arguments, early_stopping, lazy_dataset, together


class SupervisedTrainer(StreamingMixin, ResumableMixin, SFTTrainer):
    """Samples go through the model side by side in one row, without padding."""


def supervised_trainer(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, run: Run, watch: RunCallback
) -> SupervisedTrainer:
    """Ready to train."""
    rows, longest = _rows(recipe, run)
    at_once = together(longest, recipe, run.row_tokens)
    return SupervisedTrainer(
        model=model,
        processing_class=tokenizer,
        args=SFTConfig(**arguments(recipe, run, at_once), dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=rows,
        eval_dataset=lazy_dataset(Rows(run.valid)) if run.valid is not None and run.validated else None,
        data_collator=concatenate_rows,
        callbacks=[watch, *early_stopping(recipe, run), *reporting(run.report_to, run.name)],
    )


def _rows(recipe: Recipe, run: Run) -> tuple[Dataset, int]:
    """As TRL takes them, and how many tokens the longest has."""
    if isinstance(run.train, StreamingTokenFile):
        return placeholder_dataset(ragged_row([PLACEHOLDER])), recipe.max_length
    if recipe.packing:
        return lazy_dataset(PackedRows(run.train, recipe.max_length)), recipe.max_length
    return lazy_dataset(Rows(run.train)), int(run.train.lengths.max(initial=1))
