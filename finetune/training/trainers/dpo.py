"""Direct preference optimization on TRL's DPOTrainer, on pairs that are already tokenized.

Rafailov et al. 2023, "Direct Preference Optimization", arXiv:2305.18290.
"""

from typing import Any

from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedTokenizerBase
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.trainers.callback import RunCallback
from loragate.finetune.training.trainers.reporting import reporting_callbacks
from loragate.finetune.training.trainers.resumable_trainer import ResumableMixin
from loragate.finetune.training.trainers.rows import PairRows, pad_pairs, pair_row
from loragate.finetune.training.trainers.streaming_trainer import PLACEHOLDER, StreamingMixin, placeholder_dataset
from loragate.finetune.training.trainers.trainer_arguments import (
    Run,
    early_stopping,
    lazy_dataset,
    micro_batch_rows,
    training_arguments,
)


class PreferenceTrainer(StreamingMixin, ResumableMixin, DPOTrainer):
    """The reference model is the one before training: the base, or the adapter that training continues from."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


def preference_trainer(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, run: Run, callback: RunCallback
) -> PreferenceTrainer:
    """Return a trainer that is ready to train."""
    assert recipe.beta is not None
    rows, longest = _dataset(recipe, run)
    micro_batch = micro_batch_rows(2 * longest, recipe, run.row_tokens)
    return PreferenceTrainer(
        model=model,
        processing_class=tokenizer,
        args=DPOConfig(**training_arguments(recipe, run, micro_batch), beta=recipe.beta),
        train_dataset=rows,
        eval_dataset=lazy_dataset(PairRows(run.valid)) if run.valid is not None and run.validated else None,
        data_collator=pad_pairs,
        callbacks=[callback, *early_stopping(recipe, run), *reporting_callbacks(run.report_to, run.name)],
    )


def _dataset(recipe: Recipe, run: Run) -> tuple[Dataset, int]:
    """Return the rows as TRL expects them, and the tokens of the longest answer with its prompt."""
    if isinstance(run.train, StreamingTokenFile):
        return placeholder_dataset(pair_row([PLACEHOLDER, PLACEHOLDER])), recipe.max_length
    return lazy_dataset(PairRows(run.train)), int(run.train.lengths.max(initial=1))
