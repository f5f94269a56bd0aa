"""Forced calls: anything that a model samples under the grammar is a call with valid arguments."""

import json
import random
from typing import Any

import llguidance
import pytest
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from thinned import thinned
from tokenizers import Tokenizer

from loragate.gateway.tools.formats.detection import FORMATS
from loragate.gateway.tools.lark import Lark
from tests.gateway.tiny_model import byte_level_tokenizer
from tests.gateway.tool_transcripts import TOOLS
from tests.gateway.tools.test_formats import read

PLACE = {"type": "object", "properties": {"lat": {"type": "integer", "minimum": 0, "maximum": 90}}, "required": ["lat"]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "exact": {"type": "boolean"},
            "city": {"type": "string", "maxLength": 8},
            "where": {"$ref": "#/$defs/place"},
        },
        "required": ["city", "where"],
        "additionalProperties": False,
        "$defs": {"place": PLACE | {"additionalProperties": False}},
    },
    "time-of_day": {
        "type": "object",
        "properties": {"zone": {"enum": ["utc", 'lo"cal']}, "unit": {"enum": ["</tool_call>", None]}},
        "additionalProperties": False,
    },
}
assert SCHEMAS.keys() == TOOLS.keys()

MARKERS = sorted(
    {marker for format in FORMATS.values() for marker in format.markers if not marker.endswith("tool_call>")}
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_level_tokenizer(*MARKERS)


def drawn(tokenizer: Tokenizer, grammar: str, seed: int) -> str:
    """Return what a model that samples uniformly writes under the grammar."""
    eos = tokenizer.token_to_id("</s>")
    tokens = llguidance.LLTokenizer(tokenizer.to_str(), eos_token=eos)
    matcher = llguidance.LLMatcher(tokens, llguidance.grammar_from("lark", grammar))
    assert not matcher.is_error(), matcher.get_error()
    mask = allocate_token_bitmask(1, tokens.vocab_size)
    ids: list[int] = []
    choose = random.Random(seed)
    while not matcher.is_stopped():
        fill_next_token_bitmask(matcher, mask)
        allowed = [id_ for id_ in range(tokens.vocab_size) if mask[0, id_ // 32] >> (id_ % 32) & 1]
        ids.append(choose.choice(allowed))
        assert matcher.consume_token(ids[-1])
    return str(tokenizer.decode([id_ for id_ in ids if id_ != eos], skip_special_tokens=False))


def check(name: str, arguments: dict[str, Any]) -> None:
    """Check the arguments against the schemas above, by hand."""
    if name == "time-of_day":
        assert arguments.keys() <= {"zone", "unit"}
        assert arguments.get("zone", "utc") in ("utc", 'lo"cal')
        assert arguments.get("unit") in ("</tool_call>", None)
        return
    assert name == "weather"
    assert {"city", "where"} <= arguments.keys() <= {"city", "where", "exact"}
    assert len(arguments["city"]) <= 8
    assert arguments["where"].keys() == {"lat"}
    assert 0 <= arguments["where"]["lat"] <= 90
    assert isinstance(arguments.get("exact", True), bool)


@pytest.mark.parametrize("most", thinned([1, 3], fast={3}))
@pytest.mark.parametrize("format", FORMATS)
def test_anything_sampled_is_a_call(tokenizer: Tokenizer, format: str, most: int) -> None:
    ids = {marker: tokenizer.token_to_id(marker) for marker in FORMATS[format].markers if marker in MARKERS}
    lark = Lark(ids)
    grammar = lark.source(FORMATS[format].write(lark, SCHEMAS, max_calls=most))
    counts = set()
    for seed in range(30):
        content, calls = read(format, drawn(tokenizer, grammar, seed))
        assert content == ""
        assert 1 <= len(calls) <= most
        counts.add(len(calls))
        for name, arguments in calls:
            check(name, json.loads(arguments))
    assert (len(counts) > 1) == (most > 1 and format != "harmony")  # whose calls end the completion


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_to_say(tokenizer: Tokenizer, format: str) -> None:
    """A function without arguments."""
    ids = {marker: tokenizer.token_to_id(marker) for marker in FORMATS[format].markers if marker in MARKERS}
    lark = Lark(ids)
    tools = {"time-of_day": {"type": "object", "properties": {}, "additionalProperties": False}}
    grammar = lark.source(FORMATS[format].write(lark, tools, max_calls=1))
    assert read(format, drawn(tokenizer, grammar, 0)) == ("", [("time-of_day", "{}")])
