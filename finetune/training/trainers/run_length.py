"""How long a run is, as transformers is told. Of one on a file that grows nobody knows before the file is closed."""

from typing import Any

from loragate.finetune.jobs.recipe import Recipe

ENDLESS = 1 << 40  # steps: Trainer must be told of some
_STEPS_UNSEEN = 200  # that the warm-up's share is of


def length(recipe: Recipe) -> dict[str, Any]:
    """Of transformers' TrainingArguments: steps, and the schedule over them."""
    if recipe.streaming and recipe.n_steps is None:
        return {
            "max_steps": ENDLESS,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": round(recipe.warmup_ratio * _STEPS_UNSEEN),
        }
    return {
        "num_train_epochs": recipe.epochs,
        "max_steps": -1 if recipe.n_steps is None else recipe.n_steps,
        "lr_scheduler_type": recipe.lr_scheduler,
        "warmup_steps": recipe.warmup_ratio,
    }


def known_steps(max_steps: int) -> int | None:
    """Of what transformers was told."""
    return None if max_steps == ENDLESS else max_steps
