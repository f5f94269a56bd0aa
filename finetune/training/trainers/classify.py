"""Training of classifiers on transformers' Trainer, on texts that are already tokenized."""

from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import EvalPrediction, PreTrainedTokenizerBase, Trainer, TrainingArguments

from loragate.finetune.data.held_out import Places, split_samples
from loragate.finetune.data.labels import LabelSet
from loragate.finetune.data.token_cache import label_facts
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.trainers.callback import RunCallback
from loragate.finetune.training.trainers.classifier_metrics import Evaluation, evaluate, predictions
from loragate.finetune.training.trainers.reporting import reporting_callbacks
from loragate.finetune.training.trainers.resumable_trainer import ResumableMixin
from loragate.finetune.training.trainers.rows import Row, Rows
from loragate.finetune.training.trainers.trainer_arguments import (
    Run,
    early_stopping,
    micro_batch_rows,
    training_arguments,
)
from loragate.peft_format.classification import ProblemType


class LabelledRows(Rows):
    """One row per text: `input_ids`, int64 [tokens], and `labels`: the class, int64 []; whether each label applies,
    float32 [labels]; or the score, float32 []."""

    def __init__(self, tokens: TokenFile, labels: LabelSet, places: Places | None = None) -> None:
        super().__init__(tokens)
        facts = label_facts(tokens)
        assert facts is not None
        self._labels = labels
        self._outputs = {} if labels.problem_type is ProblemType.REGRESSION else labels.places(facts)
        self._chosen = places

    def __len__(self) -> int:
        return super().__len__() if self._chosen is None else len(self._chosen)

    def __getitem__(self, index: int) -> Row:
        sample = self._tokens[index if self._chosen is None else int(self._chosen[index])]
        assert sample.label is not None
        return {"input_ids": torch.from_numpy(sample.ids.astype("int64")), "labels": self._target(sample.label)}

    def _target(self, label: tuple[float, ...]) -> Tensor:
        if self._labels.problem_type is ProblemType.REGRESSION:
            return torch.tensor(label[0], dtype=torch.float32)
        outputs = [self._outputs[number] for number in label]
        if self._labels.problem_type is ProblemType.SINGLE_LABEL:
            return torch.tensor(outputs[0])
        target = torch.zeros(len(self._labels.labels))
        target[outputs] = 1.0
        return target


class ClassifierTrainer(ResumableMixin, Trainer):
    """The loss is the mean over all numbers that a step's examples have as labels, however they are divided into
    micro-batches."""

    labels: LabelSet

    def evaluation(self) -> Evaluation | None:
        """Evaluate the model as it is now; None without validation data."""
        if self.eval_dataset is None:
            return None
        found = self.predict(self.eval_dataset)  # type: ignore[arg-type]
        return evaluate(found.predictions, found.label_ids, self.labels)  # type: ignore[arg-type]

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> int:
        return sum(batch["labels"].numel() for batch in batch_samples)


def classifier_trainer(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, run: Run, callback: RunCallback
) -> ClassifierTrainer:
    """Return a trainer that is ready to train."""
    assert isinstance(run.train, TokenFile)
    facts = label_facts(run.train)
    assert facts is not None
    labels = LabelSet.of(facts)
    split = split_samples(run.train, labels, recipe.validation_split, recipe.seed)
    train, valid = LabelledRows(run.train, labels, split.train), None
    if run.valid is not None and run.validated:
        valid = LabelledRows(run.valid, labels)
    elif len(split.held_out):
        valid = LabelledRows(run.train, labels, split.held_out)
    padding = model.config.get_text_config().pad_token_id
    longest = int(run.train.lengths.max(initial=1))
    # Without a token for padding, the last token represents a text, so no other may follow.
    micro_batch = 1 if padding is None else micro_batch_rows(longest, recipe, run.row_tokens)
    arguments = training_arguments(recipe, run, micro_batch, validated=valid is not None)
    del arguments["max_length"]
    trainer = ClassifierTrainer(
        model=model,
        processing_class=tokenizer,
        args=TrainingArguments(**{**arguments, "prediction_loss_only": False, "label_names": ["labels"]}),
        train_dataset=train,
        eval_dataset=valid,
        data_collator=lambda rows: _pad(rows, padding or 0),
        compute_loss_func=lambda outputs, target, num_items_in_batch: _loss(
            outputs["logits"], target, num_items_in_batch, labels.problem_type
        ),
        compute_metrics=lambda found: _scalars(found, labels),
        preprocess_logits_for_metrics=lambda logits, _: _predicted(logits, labels.problem_type),
        callbacks=[callback, *early_stopping(recipe, run), *reporting_callbacks(run.report_to, run.name)],
    )
    trainer.labels = labels
    trainer.model_accepts_loss_kwargs = False  # our loss is divided by us
    return trainer


def _pad(rows: list[Row], padding: int) -> Row:
    """Collate rows, padded on the right to [rows, longest]."""
    ids = [row["input_ids"] for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=padding),
        "attention_mask": pad_sequence([torch.ones_like(each) for each in ids], batch_first=True),
        "labels": torch.stack([row["labels"] for row in rows]),
    }


def _loss(logits: Tensor, target: Tensor, items: int, problem_type: ProblemType) -> Tensor:
    """Return the losses of transformers' classes, in float32, as the sum divided by all `items` of a step."""
    logits = logits.float()
    match problem_type:
        case ProblemType.SINGLE_LABEL:
            total = functional.cross_entropy(logits, target, reduction="sum")
        case ProblemType.MULTI_LABEL:
            total = functional.binary_cross_entropy_with_logits(logits, target, reduction="sum")
        case ProblemType.REGRESSION:
            total = functional.mse_loss(logits[:, 0], target, reduction="sum")
    return total / items


def _predicted(logits: Tensor, problem_type: ProblemType) -> Tensor:
    """Reduce logits to predictions at once: all logits of a large file would not fit into memory."""
    return torch.from_numpy(predictions(logits.float().cpu().numpy(), problem_type))


def _scalars(found: EvalPrediction, labels: LabelSet) -> dict[str, float]:
    return evaluate(found.predictions, found.label_ids, labels).scalars()  # type: ignore[arg-type]
