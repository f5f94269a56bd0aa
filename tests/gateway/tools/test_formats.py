"""Every format, with the text divided in any way."""

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from loragate.gateway.tools.formats.detection import FORMATS
from loragate.gateway.tools.message import MessageReader, MoreArguments, ToolCall
from loragate.gateway.tools.python_literals import keyword_arguments
from loragate.gateway.tools.types import Content
from tests.gateway.tool_transcripts import BROKEN_LATE, MALFORMED, TOOLS, WELL_FORMED, Transcript

ALL = [*WELL_FORMED, *BROKEN_LATE, *(Transcript(format, text, text, []) for format, text in MALFORMED)]


def read(format: str, pieces: Iterable[str], *, parallel: bool = True) -> tuple[str, list[tuple[str, str]]]:
    """Return content and calls, as a client assembles them."""
    reader = MessageReader(FORMATS[format], TOOLS, parallel=parallel)
    content, names, arguments = "", [], []
    found = [piece for text in pieces for piece in reader.push(text)] + reader.finish()
    for piece in found:
        match piece:
            case Content(text):
                assert text
                content += text
            case ToolCall(index, id, name):
                assert index == len(names)
                assert id.startswith("call_")
                names.append(name)
                arguments.append("")
            case MoreArguments(index, text):
                assert index == len(names) - 1
                arguments[index] += text
    return content, list(zip(names, arguments, strict=True))


def shown(transcript: Transcript) -> str:
    return f"{transcript.format}-{transcript.text[:40]}"


@pytest.mark.parametrize("transcript", ALL, ids=shown)
def test_in_one_piece(transcript: Transcript) -> None:
    assert read(transcript.format, [transcript.text]) == (transcript.content, transcript.calls)


@pytest.mark.parametrize("transcript", WELL_FORMED, ids=shown)
def test_arguments_are_json(transcript: Transcript) -> None:
    for _, arguments in transcript.calls:
        assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize("transcript", ALL, ids=shown)
def test_character_by_character(transcript: Transcript) -> None:
    if len(transcript.text) > 10_000:
        pieces: Iterable[str] = _in_steps(transcript.text, 997)
    else:
        pieces = transcript.text
    assert read(transcript.format, pieces) == (transcript.content, transcript.calls)


@pytest.mark.parametrize("transcript", [each for each in ALL if len(each.text) < 1000], ids=shown)
def test_token_by_token(transcript: Transcript, tokenizer: Tokenizer) -> None:
    encoded = tokenizer.encode(transcript.text, add_special_tokens=False)
    ends = [0, *(end for _, end in encoded.offsets), len(transcript.text)]
    pieces = [transcript.text[start:end] for start, end in itertools.pairwise(ends)]
    assert "".join(pieces) == transcript.text
    assert read(transcript.format, pieces) == (transcript.content, transcript.calls)


@pytest.mark.parametrize("transcript", [each for each in ALL if len(each.text) < 1000], ids=shown)
def test_split_anywhere(transcript: Transcript) -> None:
    text = transcript.text
    for at in range(len(text) + 1):
        assert read(transcript.format, [text[:at], text[at:]]) == (transcript.content, transcript.calls), at


FRAGMENTS = sorted(
    {marker for format in FORMATS.values() for marker in format.markers}
    | {"<function=weather>", "<parameter=city>", "</parameter>", "</function>", '{"name": "weather"', ', "arguments": '}
    | {
        "weather",
        "time-of_day",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        "\\",
        ",",
        ":",
        "=",
        ";",
        " ",
        "\n",
        "x",
        "```",
    }
)


@given(st.sampled_from(sorted(FORMATS)), st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=20))
def test_any_text_is_parsed(format: str, fragments: list[str]) -> None:
    whole = read(format, ["".join(fragments)])
    assert read(format, fragments) == whole
    assert read(format, "".join(fragments)) == whole
    if not whole[1]:
        assert whole[0] == "".join(fragments)  # nothing is lost


@given(st.sampled_from(ALL), st.data())
def test_any_truncated_text_is_parsed_the_same_way(transcript: Transcript, data: st.DataObject) -> None:
    text = transcript.text[: data.draw(st.integers(0, min(len(transcript.text), 1000)))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(transcript.format, pieces) == read(transcript.format, [text])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(
    st.dictionaries(st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True, alphabet=st.characters(codec="ascii")), JSON_VALUES)
)
def test_python_literals_round_trip(arguments: dict[str, Any]) -> None:
    written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    assert keyword_arguments(f"({written})") == arguments
    _, [(_, text)] = read("pythonic", f"[weather({written})]")
    assert json.loads(text) == arguments


def test_arguments_stream_as_they_arrive() -> None:
    reader = MessageReader(FORMATS["hermes"], TOOLS, parallel=True)
    reader.push('<tool_call>{"name": "weather", "arguments": ')
    assert [type(piece) for piece in reader.push('{"ci')] == [ToolCall, MoreArguments]
    assert reader.push('ty": "O') == [MoreArguments(0, 'ty": "O')]


def test_text_is_not_held_back_longer_than_necessary() -> None:
    reader = MessageReader(FORMATS["hermes"], TOOLS, parallel=True)
    assert reader.push("a <to") == [Content("a")]
    assert reader.push("p> b") == [Content(" <top> b")]


def test_one_call_only() -> None:
    two = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>' * 2
    assert read("hermes", two + "ok", parallel=False) == ("ok", [("weather", "{}")])


def test_long_arguments_in_many_pieces() -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "' + "x" * 200_000
    assert read("hermes", _in_steps(text, 4)) == ("", [("weather", text[44:])])


def _in_steps(text: str, step: int) -> Iterator[str]:
    return (text[at : at + step] for at in range(0, len(text), step))
