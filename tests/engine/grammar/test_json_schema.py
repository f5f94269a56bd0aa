"""Each keyword of JSON Schema is enforced or rejected: texts drawn at random under a schema, judged by `jsonschema`."""

import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest
from tiny_tokenizers import byte_level

from loragate.engine.grammar.compiler import Compiled, GrammarCompiler, GrammarRejected
from loragate.engine.grammar.matcher import GrammarMatcher
from loragate.engine.grammar.spec import Grammar, GrammarKind
from loragate.engine.grammar.tokenizer import TokenSpace
from loragate.engine.grammar.vocabulary import read_vocabulary

EOS, SIZE = 2, 320
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


KEPT: list[dict[str, Any]] = [
    {"type": "object", "minProperties": 2, "maxProperties": 3, "additionalProperties": DIGIT},
    {"type": "object", "patternProperties": {"^x": DIGIT, "^y": {"type": "null"}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": False}, "additionalProperties": {"const": 1}, "maxProperties": 2},
    {"type": "object", "properties": {"a": DIGIT}, "required": ["b"], "additionalProperties": {"type": "boolean"}},
    closed(**{'"q\\': {"const": 1}, "é": {"const": 2}, "": {"const": 3}}),
    closed(a={"minimum": 5, "maximum": 9}),
    {"type": "array", "prefixItems": [{"type": "boolean"}], "items": {"type": "null"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": False},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "minimum": -1.5, "maximum": 1e3},
    {"type": "number", "minimum": 0, "maximum": 3, "multipleOf": 0.25},
    {"type": "integer", "minimum": -5, "maximum": 5, "multipleOf": 2},
    {"type": ["integer", "boolean"], "minimum": 3, "maximum": 20},
    {"type": ["string", "null"], "minLength": 3, "maxLength": 4},
    {"type": "string", "pattern": "^(foo|bar)[0-9]{2}$"},
    {"type": "string", "pattern": "b+", "maxLength": 5},
    {"type": "string", "enum": ["a", "bb", "ccc"], "minLength": 2},
    {"enum": [1, "a", None, {"b": [1.5]}, True, 'é"\\']},
    {"const": {"b": 1, "a": [2, None]}},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "ipv4"},
    {"allOf": [closed(a=DIGIT), {"properties": {"a": {"maximum": 5}}}]},
    {"anyOf": [DIGIT, closed(t={"const": "x"})]},
    {"oneOf": [closed(t={"const": "x"}), closed(t={"const": "y"}, n={"type": "boolean"})]},
    closed(a={"$ref": "#/$defs/q", "maximum": 3}) | {"$defs": {"q": DIGIT}},
    closed(a={"$ref": "#/$defs/list"})
    | {"$defs": {"list": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/list"}}}},
    {"type": "array", "items": [DIGIT], "additionalItems": False, "$schema": "http://json-schema.org/draft-07/schema#"},
    {"title": "t", "description": "d", "$comment": "c", "default": 1, "examples": [1], "deprecated": True} | DIGIT,
    {"x-guidance": {"whitespace_pattern": "\\n*", "lenient": True}} | closed(a=DIGIT),
]
REJECTED = {
    "not": {"type": "null"},
    "if": {"type": "null"},
    "then": {"type": "null"},
    "else": {"type": "null"},
    "uniqueItems": True,
    "contains": {"type": "null"},
    "minContains": 1,
    "maxContains": 1,
    "propertyNames": {"maxLength": 3},
    "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": {}},
    "dependencies": {"a": ["b"]},
    "unevaluatedProperties": False,
    "unevaluatedItems": False,
    "$dynamicRef": "#a",
    "$recursiveRef": "#",
}


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(TokenSpace(byte_level().to_str().encode(), SIZE, frozenset([EOS])), threads=1)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tokens() -> tuple[bytes | None, ...]:
    return read_vocabulary(byte_level().to_str().encode(), SIZE, [EOS]).tokens


def compiled(compiler: GrammarCompiler, schema: dict[str, Any]) -> Compiled:
    results: list[Compiled] = []
    done = threading.Event()
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
    compiler.compile("tenant", grammar, lambda result: (results.append(result), done.set())[1])
    assert done.wait(120)
    return results[0]


def drawn(
    compiler: GrammarCompiler, matcher: GrammarMatcher, tokens: tuple[bytes | None, ...], dice: random.Random
) -> bytes:
    """Draw a text that prefers to end."""
    text = b""
    while not matcher.complete:
        mask = compiler.masks.fill([matcher.allowed]).view(np.uint8)
        allowed = np.unpackbits(mask, bitorder="little")[:SIZE].nonzero()[0].tolist()
        assert allowed, f"no way on from {text!r}"
        ends = [t for t in allowed if t == EOS or tokens[t] in (b'"', b"]", b"}", b",")]
        token = dice.choice(ends if ends and dice.random() < 0.5 else allowed)
        matcher.advance(token)
        text += tokens[token] or b""
    return text


@pytest.mark.parametrize("schema", KEPT, ids=lambda schema: json.dumps(schema)[:60])
def test_accepted_keywords_are_enforced(
    compiler: GrammarCompiler, tokens: tuple[bytes | None, ...], schema: dict[str, Any]
) -> None:
    judge = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    start = compiled(compiler, schema)
    assert isinstance(start, GrammarMatcher), start
    dice = random.Random(0)
    for _ in range(12):
        text = drawn(compiler, start.fork(), tokens, dice)
        judge(schema, format_checker=judge.FORMAT_CHECKER).validate(json.loads(text))
        assert b"\n" not in text


@pytest.mark.parametrize("keyword", REJECTED)
def test_unsupported_keywords_are_rejected_by_name(compiler: GrammarCompiler, keyword: str) -> None:
    rejection = compiled(compiler, {"type": ["object", "array"], keyword: REJECTED[keyword]})
    assert isinstance(rejection, GrammarRejected)
    assert keyword in str(rejection)
