"""What a job's events say about its files once they are valid."""

from collections.abc import Iterator

from loragate.finetune.data.labels import LabelFacts, LabelSet, quoted_labels
from loragate.finetune.data.token_cache import label_facts
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.run.preparation import Prepared
from loragate.peft_format.classification import ProblemType

_SHOWN = 10  # labels with their counts


def validation_messages(prepared: Prepared) -> Iterator[tuple[str, str]]:
    """Yield the level and the text of each event."""
    train = prepared.train
    if train is None:
        yield "info", "The training file is still open: the job ends once the file is closed and fully read."
        return
    yield "info", _lines(train, prepared.recipe.max_length)
    facts = label_facts(train)
    if facts is not None:
        yield "info", _labels(facts)
        yield from _validation(prepared, train, facts)


def _lines(train: TokenFile, max_length: int) -> str:
    parts = [f"The files are valid: {train.facts['examples']} examples."]
    if train.facts["cut"]:
        parts.append(f"{train.facts['cut']} are longer than `max_length` ({max_length} tokens) and are truncated.")
    if train.facts["dropped"]:
        parts.append(f"{train.facts['dropped']} are skipped: their first {max_length} tokens contain nothing to learn.")
    return " ".join(parts)


def _labels(facts: LabelFacts) -> str:
    if facts.problem_type is ProblemType.REGRESSION:
        return "The labels are scores: the result computes one number."
    counts = dict(zip(facts.names, facts.counts, strict=True))
    shown = ", ".join(f"'{label}' ({counts[label]})" for label in facts.outputs[:_SHOWN])
    more = f" and {len(facts.outputs) - _SHOWN} more" if len(facts.outputs) > _SHOWN else ""
    kind = "labels that apply independently" if facts.problem_type is ProblemType.MULTI_LABEL else "classes"
    return f"There are {len(facts.outputs)} {kind}: {shown}{more}."


def _validation(prepared: Prepared, train: TokenFile, facts: LabelFacts) -> Iterator[tuple[str, str]]:
    labels = LabelSet.of(facts)
    if prepared.valid is not None and (valid := label_facts(prepared.valid)) is not None:
        if missing := labels.missing(valid):
            yield "warn", f"The validation file has no example of {quoted_labels(missing)}."
        return
    held_out = [] if prepared.split is None else prepared.split.held_out.tolist()
    if not held_out:
        yield "warn", "There are no examples to evaluate the result on: give a `validation_file` or more examples."
        return
    yield "info", f"{len(held_out)} examples are held out: the result is evaluated on them."
    if labels.problem_type is not ProblemType.REGRESSION:
        places = labels.places(facts)
        found = {places[number] for sample in held_out for number in train.label(sample) or ()}
        if missing := tuple(label for place, label in enumerate(labels.labels) if place not in found):
            yield "warn", f"None of the examples that are held out is of {quoted_labels(missing)}."
