"""The heads of transformers' classes are served only if those compute what the engine does."""

from typing import Any

import pytest
from tiny_models import make_model
from transformers import LlamaForSequenceClassification

from loragate.engine.model.classifier_heads import classifier_heads
from loragate.peft_format.classification import ClassifierHead, Task


def test_the_heads_of_a_model() -> None:
    model = make_model("gpt2")
    assert classifier_heads(model) == {
        Task.SEQUENCE: ClassifierHead("score", 32),
        Task.TOKENS: ClassifierHead("classifier", 32, bias=True),
    }
    assert not any(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize("scale", [2, None], ids=["another result", "an error"])
def test_a_class_that_differs_is_not_served(monkeypatch: pytest.MonkeyPatch, scale: int | None) -> None:
    forward = LlamaForSequenceClassification.forward

    def differing(self: Any, *args: Any, **options: Any) -> Any:
        if scale is None:
            raise NotImplementedError
        output = forward(self, *args, **options)
        output.logits = scale * output.logits
        return output

    monkeypatch.setattr(LlamaForSequenceClassification, "forward", differing)
    assert classifier_heads(make_model("llama")).keys() == {Task.TOKENS}
