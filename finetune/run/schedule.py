"""The number of steps of a run, before it starts, and the interval between its checkpoints."""

import math

from loragate.finetune.data.formats import Method
from loragate.finetune.data.packing import pack
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.run.preparation import Prepared
from loragate.finetune.run.published_checkpoints import MAX_PUBLISHED


def total_steps(prepared: Prepared) -> int | None:
    """Return the number of steps, None if it is unknown. Slow for many packed rows (a second per million)."""
    if prepared.train is None:
        return prepared.recipe.n_steps
    rows = _rows(prepared.train, prepared.recipe) if prepared.split is None else len(prepared.split.train)
    return prepared.recipe.epochs * math.ceil(rows / prepared.recipe.batch_size)


def checkpoint_interval(max_steps: int, steps: int | None) -> int:
    """Return the steps between checkpoints: at most `max_steps`, and few enough for all that are published."""
    return max(1, max_steps if steps is None else min(max_steps, steps // MAX_PUBLISHED))


def _rows(train: TokenFile, recipe: Recipe) -> int:
    """Return the number of rows that `training.trainers.rows` makes."""
    if recipe.method is Method.DPO:
        return len(train) // 2
    return len(pack(train.lengths.tolist(), recipe.max_length)) if recipe.packing else len(train)
