"""Labels of training files: what is a class and what a score, which are rejected and where, and what is held out."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loragate.finetune.data.formats import Format, Method
from loragate.finetune.data.held_out import split_samples
from loragate.finetune.data.labels import LabelSet
from loragate.finetune.data.token_cache import CachedFile, TokenCache, label_facts
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.data.tokenization_config import TokenizationConfig, tokenization_config
from loragate.finetune.data.validation import ValidationReport, validate
from loragate.peft_format.classification import ProblemType
from loragate.prompts.messages import ChatMessage
from loragate.prompts.template_messages import template_messages
from tests.finetune.data.test_token_cache import byte_level, manifest

CHAT = [{"role": "user", "content": "who?"}, {"role": "assistant", "content": "the fox"}]


def configured(template: str = "") -> TokenizationConfig:
    return tokenization_config(manifest(byte_level(), template))


def lines(*labels: Any) -> bytes:
    return "\n".join(json.dumps({"text": f"fox {n}", "label": label}) for n, label in enumerate(labels)).encode()


def examined(*labels: Any) -> ValidationReport:
    return validate(BytesIO(lines(*labels)))


@pytest.mark.parametrize(
    ("labels", "problem_type", "outputs"),
    [
        (["b", "a", "b"], ProblemType.SINGLE_LABEL, ("a", "b")),
        ([1, 0, 10, 2], ProblemType.SINGLE_LABEL, ("0", "1", "2", "10")),
        ([["b"], [], ["a", "b"]], ProblemType.MULTI_LABEL, ("a", "b")),
        ([1, 0.5, 1], ProblemType.REGRESSION, ("score",)),  # as JavaScript writes 1.0
        ([1.0, 0.0], ProblemType.REGRESSION, ("score",)),
    ],
)
def test_the_type_of_a_label_decides_what_it_is(
    labels: list[Any], problem_type: ProblemType, outputs: tuple[str, ...]
) -> None:
    found = examined(*labels * 5)
    assert found.rejection(Method.CLASSIFY) is None
    assert found.format is Format.LABELLED_TEXT
    assert found.labels is not None
    assert LabelSet.of(found.labels) == LabelSet(problem_type, outputs)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (True, "Line 2: Invalid 'label': it must be a string, an integer, a list of strings or a number"),
        (None, "Line 2: Invalid 'label': it must be"),
        ("", "Line 2: Invalid 'label': "),
        ("x" * 257, "Line 2: Invalid 'label': "),
        (10_000_000, "Line 2: Invalid 'label': "),
        (["a", "a"], "Line 2: Invalid 'label': it has the same label twice"),
        (["a", 1], "Line 2: Invalid 'label.1': "),
        (3, "Line 2: Invalid 'label': it is a number, but in earlier lines a string"),
    ],
)
def test_a_bad_label_is_rejected_with_its_line_and_field(label: Any, words: str) -> None:
    (problem,) = examined("a", label, "b").problems
    assert str(problem).startswith(words)
    assert (problem.param or "").startswith("label")


def test_labels_that_teach_nothing_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def rejection(*labels: Any) -> str:
        return examined(*labels).rejection(Method.CLASSIFY) or ""

    assert "at least two classes" in rejection(*["a"] * 12)
    assert "an empty list" in rejection(*[[]] * 12)
    assert "nothing to learn" in rejection(*[1.0, 1] * 6)
    assert "more than 1000 different integers" in rejection(*range(1001))
    assert rejection(*range(1001), 0.5) == ""
    assert rejection(*map(str, range(1001))) == "Line 1001: Invalid 'label': it makes more than 1000 different labels"
    assert "for the method 'classify', not 'supervised'" in (examined(*"ab" * 5).rejection(Method.SUPERVISED) or "")


def test_a_validation_file_has_the_labels_of_the_training_file() -> None:
    def unknown(training: list[Any], other: list[Any]) -> str | None:
        first, second = examined(*training).labels, examined(*other).labels
        assert first is not None
        assert second is not None
        return LabelSet.of(first).unknown(second)

    assert unknown(["a", "b"], ["b", "a", "c"]) == (
        "Line 3: Invalid 'label': no example of the training file has this label."
    )
    assert "not that of the training file" in (unknown(["a", "b"], [["a"]]) or "")
    assert unknown([0.5, 1], [0, 1]) is None, "scores that all happen to be whole"
    assert "Line 1" in (unknown([0, 1], [0.5]) or "")


def tokens(folder: Path, content: bytes, template: str = "") -> TokenFile:
    tokenization = configured(template)
    report, found = TokenCache(folder).tokens_of(CachedFile("t", "f"), BytesIO(content), "d", tokenization, 24)
    assert found is not None, report
    again, cached = TokenCache(folder).tokens_of(CachedFile("t", "f"), BytesIO(b""), "d", tokenization, 24)
    assert again.labels == report.labels
    assert cached is not None
    return cached


def test_samples_have_the_tokens_of_a_request_and_their_labels(tmp_path: Path) -> None:
    """A text has no end that the model would generate; one that is too long loses its end."""
    texts = ["fox", "the fox says " * 20]
    rows = [{"text": text, "label": label} for text, label in zip(texts, (["b", "a"], []), strict=True)]
    found = tokens(tmp_path, "\n".join(map(json.dumps, rows)).encode())
    tokenizer = configured().tokenizer
    assert [found[place].ids.tolist() for place in (0, 1)] == [tokenizer.encode_text(text)[:24] for text in texts]
    assert [found.label(place) for place in (0, 1)] == [(0.0, 1.0), ()]
    facts = label_facts(found)
    assert facts is not None
    assert LabelSet.of(facts).places(facts) == {0.0: 1, 1.0: 0}


def test_chats_are_rendered_as_requests_to_classify_are(tmp_path: Path) -> None:
    template = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"
    found = tokens(tmp_path, json.dumps({"messages": CHAT, "label": "a"}).encode(), template)
    tokenization = configured(template)
    assert tokenization.template is not None
    messages = template_messages([ChatMessage(**each) for each in CHAT], tokenization.template.traits)
    rendered = tokenization.template.render(messages, prompt=False)
    assert found[0].ids.tolist() == tokenization.tokenizer.encode_chat(rendered)


def test_the_same_share_of_each_class_is_held_out(tmp_path: Path) -> None:
    found = tokens(tmp_path, lines(*["a"] * 40, *["b"] * 20, "rare"))
    facts = label_facts(found)
    assert facts is not None
    split = split_samples(found, LabelSet.of(facts), 0.1, seed=3)
    held_out = split.held_out.tolist()
    assert [found.label(place) for place in held_out] == [(0.0,)] * 4 + [(1.0,)] * 2
    assert sorted([*held_out, *split.train.tolist()]) == list(range(61))
    assert np.array_equal(split_samples(found, LabelSet.of(facts), 0.1, seed=3).held_out, split.held_out)
    assert split_samples(found, LabelSet.of(facts), 0.1, seed=4).held_out.tolist() != held_out
