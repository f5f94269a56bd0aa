"""A thinking budget in the running step loop: a random model, whose thoughts end by themselves or at the budget."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from thinned import thinned
from tiny_tokenizers import byte_level
from worded import EOS, PROMPT, VOCABULARY, Worded, regex, schema

from loragate.engine.grammar.spec import Grammar, choice_grammar
from loragate.engine.grammar.thinking import Thinking
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import ErrorCode, FinishReason
from loragate.engine.sequence.pooling import Pooling
from loragate.engine.server.conversions import request_from
from loragate.v1 import engine_pb2 as pb

START, BLANK, MARKER, AFTER = (320, 321), 322, (323, 324), 325  # without text in the vocabulary
END = (BLANK, *MARKER, AFTER)
CLOSING_IS_LIKELY = ((MARKER[0], 6.5), (MARKER[1], 6.5))
PLACE = {
    "type": "object",
    "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}, "flat": {"type": "boolean"}},
    "required": ["zip", "flat"],
    "additionalProperties": False,
}


def opened(max_tokens: int | None, **fields: Any) -> Thinking:
    return Thinking(END, MARKER, max_tokens, open=True, **fields)


def not_opened(max_tokens: int | None, start: tuple[int, ...] = START) -> Thinking:
    return Thinking(END, MARKER, max_tokens, start=start)


def toward(*tokens: int) -> dict[str, Any]:
    """Return options with which the model generates these, where they are allowed."""
    return {"logit_bias": tuple((token, 100.0) for token in sorted(tokens))}


@pytest.fixture(scope="module")
def thinker(root: Path) -> Iterator[Worded]:
    made = Worded(root / "byte_level", byte_level())
    yield made
    made.engine.close()


def completed(worded: Worded, thinking: Thinking | None, grammar: Grammar | None = None, **options: Any) -> list[int]:
    """Return the tokens of one completion."""
    request = worded.submit(grammar, thinking=thinking, **options)
    assert worded.engine.result(request)[-1].error is None
    return worded.engine.tokens(request)


def split(tokens: list[int]) -> tuple[list[int], list[int]]:
    """Return the thought with its marker, and what follows."""
    end = next(i for i in range(len(tokens)) if tuple(tokens[i : i + 2]) == MARKER) + len(MARKER)
    return tokens[:end], tokens[end:]


@pytest.mark.parametrize("budget", [0, 1, 7])
def test_the_closing_tokens_follow_the_budget(thinker: Worded, budget: int) -> None:
    """Tokens before them are those of a request without a budget; after them the model continues from them."""
    options: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 24}
    free = completed(thinker, None, **options)
    tokens = completed(thinker, opened(budget), **options)
    closed = budget + len(END)
    assert tokens[:budget] == free[:budget]
    assert tokens[budget:closed] == [*END]
    again = thinker.engine.generate([*PROMPT, *tokens[:closed]], temperature=0, max_tokens=24 - closed)
    assert tokens[closed:] == again


def test_a_thought_may_end_before_its_budget(thinker: Worded) -> None:
    """Nothing is forced then, neither the rest of `end` nor a second closing."""
    tokens = completed(thinker, opened(5), max_tokens=12, ignore_eos=True, **toward(*MARKER[:1]) | {"temperature": 0})
    assert tokens[:5] == [MARKER[0]] * 5, "one token of the marker ends nothing"
    assert tokens[5:8] == [MARKER[1], AFTER, MARKER[0]], "what the thought ends with is not repeated"
    thinking = Thinking(MARKER[:1], MARKER[:1], 5, open=True)
    assert completed(thinker, thinking, max_tokens=9, temperature=0, **toward(MARKER[0])) == [MARKER[0]] * 9
    free = completed(thinker, None, regex("a"), temperature=0, **toward(MARKER[0]))
    assert completed(thinker, thinking, regex("a"), temperature=0, **toward(MARKER[0])) == [MARKER[0], *free]


@pytest.mark.parametrize("budget", thinned([0, 1, 9, None], fast={0, None}))
def test_the_grammar_begins_where_the_thought_ends(thinker: Worded, budget: int | None) -> None:
    """The answer is the one to a prompt that has the thought in it."""
    validator, ends = jsonschema.Draft202012Validator(PLACE), []
    for seed in range(8):
        request = thinker.submit(
            schema(PLACE), thinking=opened(budget), seed=seed, logit_bias=CLOSING_IS_LIKELY, min_tokens=2
        )
        assert thinker.engine.result(request)[-1].finish is FinishReason.STOP
        thought, answer = split(thinker.engine.tokens(request))
        assert EOS not in thought
        forced = budget is not None and len(thought) > budget
        assert (answer[:1] == [AFTER]) == forced
        validator.validate(json.loads(thinker.decoded(answer[forced:])))
        assert budget is None or len(thought) <= budget + len(END) - 1
        ends.append(len(thought))
    assert budget in (0, 1) or len(set(ends)) > 1


def test_the_answer_is_that_to_a_prompt_with_the_thought(thinker: Worded) -> None:
    for grammar in (schema(PLACE), choice_grammar(["yes", "no"])):
        tokens = completed(thinker, opened(6), grammar, temperature=0)
        before = 6 + len(END)
        request = thinker.engine.submit([*PROMPT, *tokens[:before]], grammar=grammar, max_tokens=400, ignore_eos=False)
        thinker.engine.result(request)
        assert thinker.engine.tokens(request) == tokens[before:]


def test_eos_ends_a_thought_only_where_no_grammar_follows(thinker: Worded) -> None:
    options = toward(EOS) | {"temperature": 0}
    assert completed(thinker, opened(4), **options) == [EOS]
    tokens = completed(thinker, opened(4), choice_grammar(["yes"]), **options)
    assert tokens[4:8] == [*END]
    assert EOS not in tokens[:8]
    assert thinker.decoded(tokens[8:]) == "yes"


def test_a_thought_that_is_not_open_begins_with_its_start(thinker: Worded) -> None:
    likes_start = toward(START[0]) | {"temperature": 0, "ignore_eos": True}
    for start in (START[:1], (START[0],) * 2):
        tokens = completed(
            thinker, not_opened(3, start), choice_grammar(["yes"]), **toward(START[0]) | {"temperature": 0}
        )
        assert tokens[: len(start)] == [*start]
        assert tokens[len(start) : len(start) + 7] == [START[0]] * 3 + [*END]
        assert thinker.decoded(tokens[len(start) + 7 :]) == "yes"
    tokens = completed(thinker, not_opened(0, START[:1]), max_tokens=8, **likes_start)
    assert tokens[:5] == [START[0], *END], "a budget of 0 closes the thought at once"


def test_an_answer_without_a_thought_is_in_the_grammar_from_its_first_token(thinker: Worded) -> None:
    free = completed(thinker, None, schema(PLACE), seed=4)
    unlikely = ((START[0], -100.0),)
    assert completed(thinker, not_opened(3), schema(PLACE), seed=4, logit_bias=unlikely) == free
    assert completed(thinker, not_opened(3), max_tokens=20, seed=4, logit_bias=unlikely) == completed(
        thinker, None, max_tokens=20, seed=4, logit_bias=unlikely
    )


def test_a_start_of_several_tokens_may_turn_out_to_be_the_answer(thinker: Worded) -> None:
    """Its first token is text that the grammar allows, too."""
    a, b, c = (thinker.tokenizer.token_to_id(letter) for letter in "abc")
    answers = set()
    for liked in (b, c):
        tokens = completed(
            thinker, not_opened(2, (a, b)), regex("ac+"), temperature=0, **toward(a, liked), max_tokens=12
        )
        answers.add(tuple(tokens[:2]))
        assert (tokens[4:8] == [*END]) == (liked == b)
    assert answers == {(a, b), (a, c)}
    tokens = completed(thinker, not_opened(2, (a, b)), regex("dc"), temperature=0, **toward(a, c))
    assert tokens[:2] == [a, b], "after its first token, only the start can follow"


def test_the_closing_tokens_outweigh_other_controls(thinker: Worded) -> None:
    against = tuple((token, -100.0) for token in END)
    controls: dict[str, Any] = {"logit_bias": against, "top_p": 0.1, "top_k": 1, "repetition_penalty": 2.0, "seed": 3}
    assert completed(thinker, opened(2), max_tokens=7, **controls)[2:6] == [*END]
    logprobs = thinker.engine.result(thinker.submit(None, thinking=opened(0), max_tokens=1, top_logprobs=2))[0].logprob
    assert logprobs is not None
    assert logprobs.logprob < logprobs.top[0][1], "they are the model's own"


def test_max_tokens_truncates_a_thought(thinker: Worded) -> None:
    request = thinker.submit(schema(PLACE), thinking=opened(3), max_tokens=5)
    assert thinker.engine.result(request)[-1].finish is FinishReason.LENGTH
    assert thinker.engine.tokens(request)[3:] == [*END[:2]]


def test_each_of_n_has_its_own_budget(thinker: Worded) -> None:
    request = thinker.submit(schema(PLACE), thinking=opened(5), n=4)
    thinker.engine.result(request, 4)
    thoughts = set()
    for index in range(4):
        thought, answer = split(thinker.engine.tokens(request, index))
        jsonschema.validate(json.loads(thinker.decoded([t for t in answer if t != AFTER])), PLACE)
        thoughts.add(tuple(thought))
    assert len(thoughts) == 4


CASES: list[tuple[Thinking | None, Grammar | None, dict[str, Any]]] = [
    (opened(0), schema(PLACE), {"seed": 1}),
    (opened(7), schema(PLACE), {"seed": 2, "logit_bias": CLOSING_IS_LIKELY}),
    (opened(30), None, {"seed": 3, "max_tokens": 60, "ignore_eos": True, "repetition_penalty": 1.2}),
    (opened(24), regex("(ab|c)+d[0-9]{1,9}"), {"temperature": 0}),
    (not_opened(9, START[:1]), schema(PLACE), {"seed": 4, "logit_bias": ((START[0], 9.0),)}),
    (not_opened(9), choice_grammar(["yes and yes", "no and no"]), {"seed": 5}),
    (None, schema(PLACE), {"seed": 6}),
    (None, None, {"seed": 7, "max_tokens": 40, "ignore_eos": True}),
    (None, None, {"temperature": 0, "max_tokens": 40, "ignore_eos": True}),
]


def all_completed(worded: Worded, **options: Any) -> list[list[int]]:
    """Return the tokens of all cases, run in one batch with adapters."""
    names = (None, "a", "b", "a", "c")
    requests = [
        worded.submit(grammar, names[i % len(names)], thinking=thinking, **{"max_tokens": 150} | own | options)
        for i, (thinking, grammar, own) in enumerate(CASES)
    ]
    for request in requests:
        assert worded.engine.result(request)[-1].error is None
    return [worded.engine.tokens(request) for request in requests]


@pytest.fixture(scope="module")
def alone(thinker: Worded) -> list[list[int]]:
    """The tokens of each case in an engine that does nothing else meanwhile."""
    names = (None, "a", "b", "a", "c")
    found = []
    for i, (thinking, grammar, own) in enumerate(CASES):
        request = thinker.submit(grammar, names[i % len(names)], thinking=thinking, **{"max_tokens": 150} | own)
        thinker.engine.result(request)
        found.append(thinker.engine.tokens(request))
    return found


def test_neighbours_keep_their_tokens(thinker: Worded, alone: list[list[int]]) -> None:
    assert all_completed(thinker) == alone


def test_speculation_changes_no_token(thinker: Worded, alone: list[list[int]]) -> None:
    metrics = thinker.engine.core.metrics
    before = metrics.spec_decode_draft_tokens
    assert all_completed(thinker, draft_tokens=5) == alone
    assert metrics.spec_decode_draft_tokens > before
    repeats: dict[str, Any] = toward(40) | {"max_tokens": 60, "ignore_eos": True}
    plain = completed(thinker, opened(30), **repeats)
    accepted = metrics.spec_decode_accepted_tokens
    assert completed(thinker, opened(30), draft_tokens=6, **repeats) == plain
    assert plain == [40] * 30 + [*END] + [40] * 26
    assert metrics.spec_decode_accepted_tokens > accepted + 20


@pytest.mark.parametrize("draft_tokens", [0, 4])
def test_async_scheduling_changes_no_token(
    fresh: Callable[..., Worded], alone: list[list[int]], draft_tokens: int
) -> None:
    worded = fresh(async_scheduling="on", max_batch_size=6)
    assert worded.engine.core.stepper.late
    assert all_completed(worded, draft_tokens=draft_tokens) == alone


@pytest.mark.parametrize("late", ["off", "on"])
def test_a_preempted_thought_continues(fresh: Callable[..., Worded], alone: list[list[int]], late: str) -> None:
    tight = fresh(kv_cache_tokens=112, max_model_len=104, async_scheduling=late)
    assert all_completed(tight) == alone
    assert tight.engine.core.scheduler.preemptions > 0


def test_the_prefix_cache_changes_no_token(fresh: Callable[..., Worded]) -> None:
    worded = fresh()
    prompt = PROMPT * 10
    answers = []
    for salt in (b"", b"salt", b"salt"):
        request = worded.engine.submit(
            prompt, "a", grammar=schema(PLACE), thinking=opened(12), cache_salt=salt, max_tokens=200, ignore_eos=False
        )
        cached = worded.engine.result(request)[0].cached_tokens
        answers.append(worded.engine.tokens(request))
    assert cached >= 24
    assert answers[0] == answers[1] == answers[2]
    follow_up = [*prompt, *answers[0][: 12 + len(END)]]
    request = worded.engine.submit(
        follow_up, "a", grammar=schema(PLACE), cache_salt=b"salt", max_tokens=200, ignore_eos=False
    )
    assert worded.engine.result(request)[0].cached_tokens > len(prompt), "the thought's blocks are shared, too"
    assert worded.engine.tokens(request) == answers[0][12 + len(END) :]


def test_rows_without_a_restriction_need_no_mask(fresh: Callable[..., Worded]) -> None:
    """A thought without a grammar is restricted only while it is closed."""
    worded = fresh()
    filled: list[int] = []
    masks = worded.engine.core.stepper._grammars.masks
    fill = masks.fill
    masks.fill = lambda allowed: (filled.append(len(allowed)), fill(allowed))[1]  # type: ignore[method-assign]
    options: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True, "temperature": 0}
    for thinking, count in ((None, 0), (opened(None), 0), (not_opened(3), 0), (opened(10), len(END))):
        filled.clear()
        requests = [worded.submit(None, **options), worded.submit(None, thinking=thinking, **options)]
        for request in requests:
            worded.engine.result(request)
        assert filled == [1] * count


@pytest.mark.parametrize(
    ("thinking", "words"),
    [
        (opened(-1), "thinking.max_tokens is negative"),
        (Thinking((), (), 3, open=True), "thinking.end is empty"),
        (Thinking(END, (), 3, open=True), "thinking.end_marker is empty"),
        (Thinking(END, (MARKER[1], MARKER[0]), 3, open=True), "thinking.end_marker does not occur in thinking.end"),
        (Thinking((BLANK,) * 65, (BLANK,), 3, open=True), "thinking.end has 65 tokens: give at most 64"),
        (Thinking(END, (*END, BLANK), 3, open=True), "thinking.end_marker does not occur"),
        (Thinking((VOCABULARY,), (VOCABULARY,), 3, open=True), f"thinking.end has a token id outside .* {VOCABULARY}"),
        (Thinking((BLANK, EOS), (BLANK,), 3, open=True), "thinking.end has an end-of-sequence token"),
        (Thinking(END, MARKER, 3), "thinking.start is empty"),
        (not_opened(3, (-1,)), "thinking.start has a token id outside"),
        (not_opened(3, (EOS,)), "thinking.start has an end-of-sequence token"),
        (not_opened(3, (BLANK,) * 65), "thinking.start has 65 tokens"),
    ],
)
def test_bad_values_are_rejected_with_the_field(thinker: Worded, thinking: Thinking, words: str) -> None:
    last = thinker.engine.result(thinker.submit(None, thinking=thinking))[-1]
    assert last.error is not None
    assert last.error[0] is ErrorCode.INVALID_REQUEST
    assert re.search(words, last.error[1])


def test_an_embedding_has_no_thought(thinker: Worded) -> None:
    last = thinker.engine.result(thinker.submit(None, thinking=opened(3), pooling=Pooling.LAST))[-1]
    assert last.error is not None
    assert "thinking" in last.error[1]


def test_a_budget_needs_neither_the_library_nor_a_tokenizer(
    start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    engine = start()
    assert engine.generate([1, 5], max_tokens=5, thinking=Thinking((7, 8), (8,), 2, open=True))[2:4] == [7, 8]


def test_the_message_gives_all_fields() -> None:
    submit = pb.Submit(thinking=pb.Thinking(end=END, end_marker=MARKER, max_tokens=0, start=START))
    assert request_from(submit, 1).thinking == not_opened(0)
    submit = pb.Submit(thinking=pb.Thinking(end=MARKER, open=True))
    assert request_from(submit, 1).thinking == Thinking(MARKER, MARKER, None, open=True)
    assert request_from(pb.Submit(), 1).thinking is None
