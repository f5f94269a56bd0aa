"""Supervised fine-tuning on TRL's SFTTrainer, on rows that are already tokenized."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
from loragate.finetune.training.trainers.rows import PackedRows, Rows, concatenate_rows, pad_rows_for, ragged_row
from loragate.finetune.training.trainers.streaming_trainer import PLACEHOLDER, StreamingMixin, placeholder_dataset
from loragate.finetune.training.trainers.trainer_arguments import (
    Run,
    early_stopping,
    lazy_dataset,
    micro_batch_rows,
    training_arguments,
)


class SupervisedTrainer(StreamingMixin, ResumableMixin, SFTTrainer):
    """Samples of a micro-batch are concatenated into one row without padding, or, for activated LoRA, padded."""

    def prediction_step(self, *given: Any, **named: Any) -> Any:
        with _without_checkpointing(self.model):
            return super().prediction_step(*given, **named)


@contextmanager
def _without_checkpointing(model: Any) -> Iterator[None]:
    """Turn gradient checkpointing off, which evaluation does not use: with activated LoRA, PEFT adds hooks to each
    checkpointed layer and removes them in the backward pass only, and rejects the next forward pass until then."""
    layers = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
    for layer in layers:
        layer.gradient_checkpointing = False
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = True


def supervised_trainer(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, run: Run, callback: RunCallback
) -> SupervisedTrainer:
    """Return a trainer that is ready to train."""
    rows, longest = _dataset(recipe, run)
    invocation = recipe.alora_invocation_tokens
    micro_batch = micro_batch_rows(longest, recipe, run.row_tokens)
    return SupervisedTrainer(
        model=model,
        processing_class=tokenizer,
        args=SFTConfig(**training_arguments(recipe, run, micro_batch), dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=rows,
        eval_dataset=lazy_dataset(Rows(run.valid)) if run.valid is not None and run.validated else None,
        data_collator=concatenate_rows if invocation is None else pad_rows_for(invocation),
        callbacks=[callback, *early_stopping(recipe, run), *reporting_callbacks(run.report_to, run.name)],
    )


def _dataset(recipe: Recipe, run: Run) -> tuple[Dataset, int]:
    """Return the rows as TRL expects them, and the tokens of the longest row."""
    if isinstance(run.train, StreamingTokenFile):
        return placeholder_dataset(ragged_row([PLACEHOLDER])), recipe.max_length
    if recipe.packing:
        return lazy_dataset(PackedRows(run.train, recipe.max_length)), recipe.max_length
    return lazy_dataset(Rows(run.train)), int(run.train.lengths.max(initial=1))
