"""The fields of a config that describe a classifier."""

from loragate.peft_format.classification import ProblemType, Task
from loragate.peft_format.errors import in_config, quoted

_MAX_LABELS = 65_536
MAX_LABEL_CHARACTERS = 256
_GENERATION = (None, "CAUSAL_LM")


def parse_task(value: object) -> Task | None:
    """Parse `task_type`: None for generation. Raise AdapterRejected."""
    if value in _GENERATION:
        return None
    if isinstance(value, str) and value in set(Task):
        return Task(value)
    raise in_config(
        "task_type",
        f'task_type is {quoted(value)}, which is not served; train with "CAUSAL_LM", "SEQ_CLS" or "TOKEN_CLS".',
    )


def parse_labels(value: object) -> tuple[str, ...]:
    """Parse `id2label`, the labels by "0", "1" and so on; null is empty. Raise AdapterRejected."""
    name = "id2label"
    if value is None:
        return ()
    if not isinstance(value, dict) or not 1 <= len(value) <= _MAX_LABELS:
        raise in_config(name, f"{name} must be an object of 1 to {_MAX_LABELS} labels.")
    labels = [value.get(str(number)) for number in range(len(value))]
    if None in labels:
        raise in_config(name, f'{name} must have the keys "0" to "{len(labels) - 1}".')
    for label in labels:
        if not isinstance(label, str) or not 1 <= len(label) <= MAX_LABEL_CHARACTERS:
            raise in_config(
                name, f"{name} must hold names of 1 to {MAX_LABEL_CHARACTERS} characters, not {quoted(label)}."
            )
    if len(set(labels)) < len(labels):
        raise in_config(name, f"{name} has a label twice; give every output a name of its own.")
    return tuple(str(label) for label in labels)


def parse_problem_type(value: object) -> ProblemType | None:
    """Parse `problem_type`; null is None. Raise AdapterRejected."""
    if value is None:
        return None
    if isinstance(value, str) and value in set(ProblemType):
        return ProblemType(value)
    raise in_config("problem_type", f"problem_type must be one of {', '.join(ProblemType)}, not {quoted(value)}.")
