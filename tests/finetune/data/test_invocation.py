"""Samples of activated LoRA: only what follows the last invocation is learned, and lines without it are rejected."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import byte_level

from loragate.finetune.data.token_cache import CachedFile, TokenCache
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.data.tokenization_config import TokenizationConfig, tokenization_config
from loragate.finetune.data.validation import MAX_PROBLEMS, ValidationReport
from loragate.v1 import engine_pb2 as pb

TOKENIZER = byte_level()
TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m.role + '\n' + m.content + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)
THOUGHTLESS = (  # it drops the thoughts of earlier answers, so that each answer is a sample of its own
    "{% for m in messages %}{{ '<s>' + (m.content if loop.last else m.content.split('|')[-1]) + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>' }}{% endif %}"
)
JUDGE = "[judge]"
END = "</s>"


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, add_special_tokens=False).ids)


@pytest.fixture
def tokenization() -> TokenizationConfig:
    return made(TEMPLATE)


def made(template: str) -> TokenizationConfig:
    end = TOKENIZER.token_to_id(END)
    manifest = pb.Manifest(
        tokenizer_json=TOKENIZER.to_str().encode(),
        chat_template=template,
        special_tokens={"bos_token": "<s>", "eos_token": END},
        eos_token_ids=[end],
    )
    return tokenization_config(manifest)


def tokenized(
    folder: Path, tokenization: TokenizationConfig, *rows: Any, invocation: str = JUDGE, max_length: int = 256
) -> tuple[ValidationReport, TokenFile | None]:
    content = BytesIO("\n".join(map(json.dumps, rows)).encode())
    source = CachedFile("tenant_a", "file_a")
    return TokenCache(folder).tokens_of(source, content, "d", tokenization, max_length, ids_of(invocation))


def learned(tokens: TokenFile | None) -> list[str]:
    assert tokens is not None
    return [
        TOKENIZER.decode(tokens[place].ids[tokens[place].learned].tolist(), skip_special_tokens=False)
        for place in range(len(tokens))
    ]


def chat(*contents: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[place % 2], "content": text} for place, text in enumerate(contents)]}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (chat("doc", "an answer", f"{JUDGE}good?", "yes"), ["yes</s>"]),
        (chat(f"{JUDGE}doc", "one", "and", "two"), ["one</s>two</s>"]),
        (chat(f"{JUDGE}doc", f"one {JUDGE} 1", "and", "two"), ["two</s>"]),
        ({"prompt": f"{JUDGE}doc{JUDGE}", "completion": "yes"}, ["yes</s>"]),
        ({"text": f"{JUDGE}a{JUDGE}yes"}, ["yes</s>"]),
    ],
)
def test_what_follows_the_last_invocation_is_learned(
    tokenization: TokenizationConfig, row: Any, expected: list[str], tmp_path: Path
) -> None:
    report, tokens = tokenized(tmp_path, tokenization, row)
    assert not report.problems
    assert learned(tokens) == expected


def test_the_header_of_an_answer_activates_each_of_them_last(tokenization: TokenizationConfig, tmp_path: Path) -> None:
    """The prompt's own end as the invocation needs no change of the prompts: the last answer is learned."""
    _, tokens = tokenized(tmp_path, tokenization, chat("a", "one", "b", "two"), invocation="<s>assistant\n")
    assert learned(tokens) == ["two</s>"]


def test_answers_that_are_samples_of_their_own(tmp_path: Path) -> None:
    row = chat("a", "x|one", f"{JUDGE}b", "y|two")
    _, tokens = tokenized(tmp_path, made(THOUGHTLESS), row)
    assert learned(tokens) == ["y|two</s>"], "the first answer's prompt has no invocation"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (chat("doc", "yes"), "do not contain the invocation"),
        (chat("doc", f"{JUDGE}yes"), "nothing is left to learn after its last invocation"),
        ({"prompt": "doc", "completion": f"{JUDGE}yes"}, "nothing is left to learn"),
        ({"text": f"yes{JUDGE}"}, None),
    ],
)
def test_lines_with_nothing_to_learn_are_named(
    tokenization: TokenizationConfig, row: Any, words: str | None, tmp_path: Path
) -> None:
    good = {"messages": chat(f"{JUDGE}doc", "yes"), "prompt": {"prompt": JUDGE, "completion": "yes"}}
    first = next((value for name, value in good.items() if name in row), {"text": f"{JUDGE}yes"})
    report, tokens = tokenized(tmp_path, tokenization, first, row, first, row)
    if words is None:  # the end token that is appended to a text
        assert learned(tokens)[1] == END
        return
    assert tokens is None
    assert [problem.line for problem in report.problems] == [2, 4]
    assert all(words in problem.message for problem in report.problems)


def test_problems_are_in_order_and_end_in_time(tokenization: TokenizationConfig, tmp_path: Path) -> None:
    """What is wrong with tokens is found after what is wrong with the lines that follow."""
    without, bad = chat("doc", "yes"), {"messages": []}
    report, _ = tokenized(tmp_path, tokenization, chat(f"{JUDGE}doc", "yes"), without, bad, without)
    assert [problem.line for problem in report.problems] == [2, 3, 4]
    report, _ = tokenized(tmp_path, tokenization, *[without] * (MAX_PROBLEMS + 1))
    assert (len(report.problems), report.stopped) == (MAX_PROBLEMS, True)


def test_an_invocation_that_is_truncated_is_dropped_like_any_answer(
    tokenization: TokenizationConfig, tmp_path: Path
) -> None:
    rows = [chat(f"{'long ' * 40}{JUDGE}", "yes"), chat(f"{JUDGE}doc", "yes")]
    report, tokens = tokenized(tmp_path, tokenization, *rows, max_length=40)
    assert not report.problems
    assert tokens is not None
    assert (len(tokens), tokens.facts["dropped"]) == (1, 1)


def test_other_invocations_are_other_tokens(tokenization: TokenizationConfig, tmp_path: Path) -> None:
    row = chat(f"{JUDGE}doc", "yes", "[other]", "no")
    assert learned(tokenized(tmp_path, tokenization, row)[1]) == ["yes</s>no</s>"]
    assert learned(tokenized(tmp_path, tokenization, row, invocation="[other]")[1]) == ["no</s>"]
