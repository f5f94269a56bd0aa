"""Supervised fine-tuning on TRL's SFTTrainer, on rows that are tokens already."""

from peft import PeftModel
from transformers import PreTrainedTokenizerBase
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from loragate.finetune.recipe import Recipe
from loragate.finetune.training.resumable import Resumable
from loragate.finetune.training.rows import PackedRows, Rows, one_row
from loragate.finetune.training.run import Run, arguments, by_number, early_stopping, together
from loragate.finetune.training.watch import Watch


class SupervisedTrainer(Resumable, SFTTrainer):
    """Samples go through the model side by side in one row, without padding."""


def supervised_trainer(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, run: Run, watch: Watch
) -> SupervisedTrainer:
    """Ready to train."""
    rows = PackedRows(run.train, recipe.max_length) if recipe.packing else Rows(run.train)
    longest = recipe.max_length if recipe.packing else int(run.train.lengths.max(initial=1))
    at_once = together(longest, recipe, run.row_tokens)
    return SupervisedTrainer(
        model=model,
        processing_class=tokenizer,
        args=SFTConfig(**arguments(recipe, run, at_once), dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=by_number(rows),
        eval_dataset=by_number(Rows(run.valid)) if run.valid is not None and run.validated else None,
        data_collator=one_row,
        callbacks=[watch, *early_stopping(recipe, run)],
    )
