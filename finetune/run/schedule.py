"""How many steps a run will have, before it begins, and where in it checkpoints are."""

import math

from loragate.finetune.data.formats import Method
from loragate.finetune.data.packing import pack
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.run.preparation import Prepared
from loragate.finetune.run.published_checkpoints import MOST


def total_steps(prepared: Prepared) -> int | None:
    """None where nobody knows. Slow for many rows that are packed (a second a million)."""
    if prepared.train is None:
        return prepared.recipe.n_steps
    return prepared.recipe.epochs * math.ceil(_rows(prepared.train, prepared.recipe) / prepared.recipe.batch_size)


def checkpoint_interval(most: int, steps: int | None) -> int:
    """So many steps: enough for those that are published."""
    return max(1, most if steps is None else min(most, steps // MOST))


def _rows(train: TokenFile, recipe: Recipe) -> int:
    """As `training.rows` makes them."""
    if recipe.method is Method.DPO:
        return len(train) // 2
    return len(pack(train.lengths.tolist(), recipe.max_length)) if recipe.packing else len(train)
