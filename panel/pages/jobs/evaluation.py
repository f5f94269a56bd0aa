"""How well the classifier that a job trained predicts its validation examples."""

from loragate.panel.api import Json
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.confusion_matrix import confusion_matrix
from loragate.panel.parts.display.figure import figure
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.tag import div, muted, tag

_FIGURES = {
    "accuracy": ("Accuracy", "everything about an example is right"),
    "macro_f1": ("Macro F1", "the mean over the labels"),
    "mse": ("Mean squared error", "of the scores"),
    "pearson": ("Correlation", "of the scores, by Pearson"),
}


def show_evaluation(evaluation: Json | None) -> None:
    """Draw the evaluation, if there is one."""
    if evaluation is None:
        return
    with tag("section", classes="stack", aria_label="Evaluation"):
        tag("h2", "Evaluation")
        muted(f"On {formats.count(evaluation['examples'])} examples that were not trained on.", "small")
        with div("grid-2"):
            for field, (name, note) in _FIGURES.items():
                if evaluation[field] is not None:
                    figure(name, f"{evaluation[field]:.3f}", note)
        labels = evaluation["labels"]
        if evaluation["confusion_matrix"] is not None:
            with div("card flush"):
                names = [label["label"] for label in labels]
                confusion_matrix("Confusion matrix", names, evaluation["confusion_matrix"])
        if labels is not None:
            with div("card flush"):
                table("Labels", _COLUMNS, labels, key=lambda label: label["label"])


_COLUMNS = [
    Column[Json]("Label", lambda label: str(label["label"]), "break"),
    Column[Json]("Examples", lambda label: formats.count(label["examples"]), "number"),
    Column[Json]("Precision", lambda label: f"{label['precision']:.3f}", "number"),
    Column[Json]("Recall", lambda label: f"{label['recall']:.3f}", "number"),
    Column[Json]("F1", lambda label: f"{label['f1']:.3f}", "number"),
]
