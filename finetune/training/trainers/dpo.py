"""Direct preference optimisation on TRL's DPOTrainer, on pairs that are tokens already.

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
from loragate.finetune.training.trainers.reporting import reporting
from loragate.finetune.training.trainers.resumable_trainer import ResumableMixin
from loragate.finetune.training.trainers.rows import PairRows, pad_pairs, pair_row
from loragate.finetune.training.trainers.streaming_trainer import PLACEHOLDER, StreamingMixin, placeholder_dataset
from loragate.finetune.training.trainers.trainer_arguments import Run, arguments, early_stopping, lazy_dataset, together


class PreferenceTrainer(StreamingMixin, ResumableMixin, DPOTrainer):
    """The reference is the model as it was before: the base, or the adapter that is gone on from."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


def preference_trainer(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, run: Run, watch: RunCallback
) -> PreferenceTrainer:
    """Ready to train."""
    assert recipe.beta is not None
    rows, longest = _rows(recipe, run)
    at_once = together(2 * longest, recipe, run.row_tokens)
    return PreferenceTrainer(
        model=model,
        processing_class=tokenizer,
        args=DPOConfig(**arguments(recipe, run, at_once), beta=recipe.beta),
        train_dataset=rows,
        eval_dataset=lazy_dataset(PairRows(run.valid)) if run.valid is not None and run.validated else None,
        data_collator=pad_pairs,
        callbacks=[watch, *early_stopping(recipe, run), *reporting(run.report_to, run.name)],
    )


def _rows(recipe: Recipe, run: Run) -> tuple[Dataset, int]:
    """As TRL takes them, and how many tokens the longest answer has with its prompt."""
    if isinstance(run.train, StreamingTokenFile):
        return placeholder_dataset(pair_row([PLACEHOLDER, PLACEHOLDER])), recipe.max_length
    return lazy_dataset(PairRows(run.train)), int(run.train.lengths.max(initial=1))
