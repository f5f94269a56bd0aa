"""Valid and invalid training files: which format they have, and what is wrong with each line."""

import json
import tracemalloc
from io import BytesIO
from typing import Any

import pytest

from loragate.finetune.data import jsonl as jsonl_module
from loragate.finetune.data.formats import Format, Method
from loragate.finetune.data.jsonl import MAX_LINE_BYTES, read_lines
from loragate.finetune.data.validation import MIN_EXAMPLES, ValidationReport, validate

USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "hello"}
CHAT = {"messages": [USER, REPLY]}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}
PREFERENCE = {
    "input": {"messages": [USER]},
    "preferred_output": [REPLY],
    "non_preferred_output": [{"role": "assistant", "content": "go away"}],
}
GOOD: list[tuple[Format, dict[str, Any]]] = [
    (Format.CHAT, CHAT),
    (Format.CHAT, {"messages": [{"role": "developer", "content": "be kind"}, USER, REPLY]}),
    (Format.CHAT, {"messages": [USER, {**REPLY, "weight": 0}, USER, {**REPLY, "weight": 1}]}),
    (Format.CHAT, {"messages": [USER, {"role": "assistant", "content": "", "weight": 0}, USER, REPLY]}),
    (Format.CHAT, {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}], "tools": [TOOL]}),
    (Format.CHAT, {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}], "tools": [TOOL]}),
    (Format.CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, REPLY]}),
    (Format.COMPLETION, {"prompt": "", "completion": "x"}),
    (Format.TEXT, {"text": "x"}),
    (Format.PREFERENCE, PREFERENCE),
    (Format.TEXT_PREFERENCE, {"prompt": "a", "chosen": "b", "rejected": "c"}),
]


def jsonl(*documents: Any) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def examined(content: bytes) -> ValidationReport:
    return validate(BytesIO(content))


@pytest.mark.parametrize(("format", "document"), GOOD, ids=lambda value: value if isinstance(value, str) else "")
def test_each_format_is_recognized(format: Format, document: dict[str, Any]) -> None:
    found = examined(jsonl(*[document] * MIN_EXAMPLES))
    assert found == ValidationReport(format, MIN_EXAMPLES)
    assert found.rejection(format.method) is None


BAD: list[tuple[Any, str, str | None]] = [
    ([CHAT], "it must be a JSON object", None),
    ({"messages": []}, "at least 1 item", "messages"),
    ({"messages": [USER]}, "the last message must be the assistant's", "messages.0.role"),
    ({"messages": [USER, {**REPLY, "weight": 0}]}, "every assistant message has weight 0", "messages"),
    ({"messages": [{**USER, "weight": 1}, REPLY]}, "only allowed in messages of role 'assistant'", "messages.0.weight"),
    ({"messages": [USER, {**REPLY, "weight": 2}]}, "0 or 1", "messages.1.weight"),
    ({"messages": [USER, {**REPLY, "role": "bot"}]}, "'assistant'", "messages.1.role"),
    ({"messages": [USER, {"role": "assistant"}]}, "required", "messages.1.content"),
    ({"messages": [USER, {"role": "assistant", "content": 7}]}, "string", "messages.1.content"),
    ({"messages": [USER, {"role": "assistant", "content": ""}]}, "it is empty", "messages.1.content"),
    ({"messages": [USER, REPLY, USER, {"role": "assistant", "content": []}]}, "it is empty", "messages.3.content"),
    ({**CHAT, "functions": []}, "no such field", "functions"),
    ({**CHAT, "tools": [TOOL, TOOL]}, "another tool has the same name", "tools.1.function.name"),
    (
        {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, USER, REPLY]},
        "each call needs a result",
        "messages.1.tool_calls",
    ),
    ({"prompt": "a", "completion": "b"}, "its format differs from that of the first line, which is chat", None),
    ({"question": "a"}, "required", "messages"),
]


@pytest.mark.parametrize(("document", "words", "param"), BAD)
def test_a_bad_line_is_named_with_its_reason(document: Any, words: str, param: str | None) -> None:
    found = examined(jsonl(CHAT, document, CHAT))
    assert (found.examples, len(found.problems)) == (2, 1)
    assert (found.problems[0].line, found.problems[0].param) == (2, param)
    assert words in str(found.problems[0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{'text': 1}\n", "not valid JSON"),
        (b'{"text": "\xff"}\n', "not UTF-8: byte 11 of the line is 0xff"),
        (b'{"text": NaN}\n', "not valid JSON"),
        (b'{"text": ' + b"[" * 5000 + b"\n", "not valid JSON"),
        (b'{"text": "a"', "not valid JSON"),
        (b'{"text": "\\ud800"}\n', "not valid JSON"),
        (b'{"text": "\x00"}\n', "not valid JSON"),
        (b'{"text": 1e400}\n', "valid string"),
        (b'{"text": "a", "text": "b"}\n', "the same field twice"),
        (b'{"text": "a", "\xe2\x80\xae": 1}\n', "Invalid '\\u202e': there is no such field"),
        (b'{"text": "a", "' + b"x" * 1_000_000 + b'": 1}\n', "Invalid '" + "x" * 100 + "…': there is no such field"),
        (b'{"messages": [{"role": "user", "role": "assistant", "content": "b"}]}\n', "the same field twice"),
        (jsonl({"text": "a", "messages": [USER, REPLY]}), "it matches more than one format (chat, text)"),
        (jsonl({"anything": 1}), "none of the known formats (chat: 'messages'; completion: 'prompt', 'completion'"),
        (jsonl({**PREFERENCE, "non_preferred_output": [REPLY]}), "there is nothing to learn"),
        (jsonl({**PREFERENCE, "preferred_output": [{**REPLY, "content": ""}]}), "'preferred_output.0.content': it is"),
        (jsonl({**PREFERENCE, "input": {"messages": [USER, REPLY]}}), "the two outputs reply to it"),
        (jsonl({"prompt": "a", "chosen": "b", "rejected": "b"}), "there is nothing to learn"),
    ],
)
def test_a_file_of_one_bad_line(content: bytes, words: str) -> None:
    found = examined(content)
    assert len(found.problems) == 1
    assert words in str(found.problems[0])
    assert str(found.problems[0]).startswith("Line 1: ")


def test_validation_stops_at_twenty_problems() -> None:
    file = BytesIO(jsonl(*[CHAT, {"messages": [USER]}] * 30))
    found = validate(file)
    assert (found.examples, len(found.problems), found.stopped) == (20, 20, True)
    assert [problem.line for problem in found.problems] == list(range(2, 42, 2))
    assert (found.rejection(Method.SUPERVISED) or "").endswith("; later lines were not checked")
    read = b"".join(file.getvalue().splitlines(keepends=True)[:41])
    assert file.tell() == len(read), "one line beyond the last problem"


def test_twenty_problems_in_all_are_reported_as_all() -> None:
    found = examined(jsonl(*[{"messages": [USER]}] * 20))
    assert (len(found.problems), found.stopped) == (20, False)
    assert "later lines" not in found.problems_text


@pytest.mark.parametrize("line", [b"\n", b'{"text": "a"}\n'])
def test_a_file_has_a_bounded_number_of_lines(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter lines cost more time than space, blank ones too."""
    monkeypatch.setattr(jsonl_module, "MAX_LINES", 100)
    assert examined(line * 100).problems == ()
    found = examined(line * 1000)
    assert [str(problem) for problem in found.problems] == ["Line 101: a file has at most 100 lines; split it"]


def test_the_columns_and_bytes_of_a_problem_are_the_line_s_own() -> None:
    """A parser that has read the line feed reports a second line, inside a message that names another."""
    found = examined(b'{"text": "a"}\n{"text":\n{"text": "\xff"}\n{"text": "a" x}\r\n')
    assert [str(problem) for problem in found.problems] == [
        "Line 2: it is not valid JSON: EOF while parsing a value at column 8",
        "Line 3: it is not UTF-8: byte 11 of the line is 0xff",
        "Line 4: it is not valid JSON: expected `,` or `}` at column 14",
    ]


def test_too_few_examples_or_another_methods_format_are_rejected_with_the_reason() -> None:
    assert "9 examples; at least 10" in (examined(jsonl(*[CHAT] * 9)).rejection(Method.SUPERVISED) or "")
    assert "0 examples" in (examined(b"\n \n").rejection(Method.SUPERVISED) or "")
    assert "'supervised', not 'dpo'" in (examined(jsonl(*[CHAT] * 10)).rejection(Method.DPO) or "")


def test_blank_lines_are_numbered_but_skipped_and_a_byte_order_mark_is_ignored() -> None:
    content = b"\xef\xbb\xbf" + jsonl(CHAT) + b"\n\r\n" + jsonl(CHAT).replace(b"\n", b"\r\n") + b'{"text": 1}'
    found = examined(content)
    assert found.examples == 2
    assert found.problems[0].line == 5
    assert [line.end for line in read_lines(BytesIO(content))][-1] == len(content)


def test_an_endless_line_takes_no_more_memory_than_the_line_limit() -> None:
    file = BytesIO(jsonl(CHAT) + b'{"text": "' + b"x" * (16 * MAX_LINE_BYTES) + b'"}\n' + jsonl(CHAT))
    tracemalloc.start()
    found = validate(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.examples, [problem.line for problem in found.problems]) == (2, [2])
    assert "longer than 4 MiB" in str(found.problems[0])
    assert peak < 4 * MAX_LINE_BYTES


def test_progress_is_reported_in_bytes() -> None:
    received: list[int] = []
    content = jsonl(*[{"text": "x" * 300_000}] * 20)
    validate(BytesIO(content), received.append)
    assert received == sorted(received)
    assert len(received) >= 4
    assert received[-1] <= len(content)
