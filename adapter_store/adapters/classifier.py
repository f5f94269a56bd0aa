"""Classifiers as the column `classifier` of a version stores them.

Labels that the config does not name are stored as their number alone.
"""

from typing import Any

import orjson

from loragate.peft_format.classification import Classifier, ProblemType, Task, default_labels


def stored(classifier: Classifier | None) -> str | None:
    """Return the column's value; None for an adapter that generates."""
    if classifier is None:
        return None
    count = len(classifier.labels)
    named = classifier.labels != default_labels(count)
    document = {
        "task": classifier.task,
        "labels": list(classifier.labels) if named else count,
        "problem_type": classifier.problem_type,
    }
    return orjson.dumps(document).decode()


def classifier_of(column: str | None) -> Classifier | None:
    """Return the classifier that the column stores."""
    if column is None:
        return None
    document: dict[str, Any] = orjson.loads(column)
    labels, problem_type = document["labels"], document["problem_type"]
    return Classifier(
        task=Task(document["task"]),
        labels=default_labels(labels) if isinstance(labels, int) else tuple(labels),
        problem_type=None if problem_type is None else ProblemType(problem_type),
    )
