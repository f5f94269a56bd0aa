"""Requests become calls of vLLM with nothing lost, and its steps become outputs."""

from typing import Any

import pytest

from loragate.engine.grammar.spec import JSON_OBJECT, Grammar, GrammarKind, choice_grammar
from loragate.engine.sequence.output import FinishReason, TokenLogprob
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.vllm_backend.calls import call_from, outputs_from
from loragate.engine.vllm_backend.lark import lark_text
from loragate.engine.vllm_backend.llm import Step

EOS = frozenset({2, 7})


def sequence(index: int = 0, sampling: dict[str, Any] | None = None, **fields: Any) -> Sequence:
    params = SamplingParams(**{"max_tokens": 4, "seed": 3} | (sampling or {}))
    return Sequence(Request(1, 2, (5, 9, 13), None, params, **fields), index)


def test_every_field_of_sampling_reaches_vllm() -> None:
    given = {
        "temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": 0.3,
        "frequency_penalty": 0.4, "logit_bias": ((4, 1.5),), "stop_token_ids": frozenset({11}), "min_tokens": 2,
        "top_logprobs": 5,
    }  # fmt: skip
    call = call_from(sequence(sampling=given, prompt_logprobs=1), None, EOS)
    same = given.keys() - {"logit_bias", "stop_token_ids", "top_logprobs"}
    assert {name: call.sampling[name] for name in same} == {name: given[name] for name in same}
    assert call.sampling["logit_bias"] == {4: 1.5}
    assert call.sampling["stop_token_ids"] == [2, 7, 11]
    assert call.sampling["ignore_eos"], "only the list of stop tokens counts"
    assert (call.sampling["logprobs"], call.sampling["prompt_logprobs"]) == (5, 1)
    assert call_from(sequence(sampling={"ignore_eos": True}), None, EOS).sampling["stop_token_ids"] == []
    assert call_from(sequence(1, prompt_logprobs=1), None, EOS).sampling["prompt_logprobs"] is None


def test_prefixes_are_shared_under_the_given_salt_only() -> None:
    salts = [call_from(sequence(cache_salt=salt), None, EOS).cache_salt for salt in (b"a", b"a", b"b", b"", b"")]
    assert salts[0] == salts[1]
    assert len(set(salts)) == 4


def test_completions_of_one_seed_differ_and_repeat() -> None:
    seeds = [call_from(sequence(index), None, EOS).sampling["seed"] for index in (0, 1, 0)]
    assert seeds[0] == seeds[2] != seeds[1]
    assert all(0 <= seed < 1 << 63 for seed in seeds)


def test_the_tokens_of_a_step_become_an_output_each() -> None:
    row = sequence(sampling={"top_logprobs": 1})
    scored = TokenLogprob(-0.5, ((8, -0.5),))
    first = list(outputs_from(row, Step((8,), (scored,), cached_tokens=2)))
    later = list(outputs_from(row, Step((9, 2), (scored, scored), finish="stop")))
    assert [output.token for output in (*first, *later)] == [8, 9, 2]
    assert [output.finish for output in (*first, *later)] == [None, None, FinishReason.STOP]
    assert [output.cached_tokens for output in (*first, *later)] == [2, 0, 0]
    assert first[0].logprob == scored
    assert later[-1].computed == (1, 2, 3)


def test_a_request_for_the_prompt_alone_gets_no_token() -> None:
    scored = (TokenLogprob(-0.5, ()),)
    [output] = outputs_from(sequence(sampling={"max_tokens": 0}), Step((8,), scored, cached_tokens=2, finish="stop"))
    assert (output.token, output.finish, output.cached_tokens) == (None, FinishReason.LENGTH, 2)
    assert output.computed == (1, 2, 0)


def test_an_end_that_vllm_does_not_explain_is_an_error() -> None:
    [output] = outputs_from(sequence(), Step((), finish="error"))
    assert output.finish is FinishReason.ERROR
    assert output.error is not None


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (JSON_OBJECT, 'start: %json {"type": "object", "x-guidance"'),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"x-guidance": {"lenient": true}}'), '"lenient": false'),
        (Grammar(GrammarKind.REGEX, "a/b"), "start: /a\\/b/"),
        (choice_grammar(["::= a", "b"]), 'start: "::= a" | "b"'),
        (Grammar(GrammarKind.LARK, "%llguidance {}\nstart: /x/"), "%llguidance {}\nstart: /x/"),
    ],
)
def test_every_grammar_is_written_in_lark(grammar: Grammar, words: str) -> None:
    text = lark_text(grammar)
    assert words in text
    assert text.startswith("%llguidance")
    assert text.count("%llguidance") == 1
