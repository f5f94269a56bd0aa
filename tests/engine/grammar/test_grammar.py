"""Constrained decoding in the running step loop: a random model at temperature 1 generates only allowed text."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from thinned import thinned
from tiny_tokenizers import byte_level, sentencepiece_like
from tokenizers import Tokenizer
from worded import EOS, VOCABULARY, Worded, regex, schema

from loragate.engine.grammar import compiler as grammar_compiler
from loragate.engine.grammar import trial as grammar_trial
from loragate.engine.grammar.compiler import GrammarCache, GrammarCompiler, GrammarRejected
from loragate.engine.grammar.spec import JSON_OBJECT, Grammar, GrammarKind, choice_grammar
from loragate.engine.grammar.tokenizer import TokenSpace
from loragate.engine.local import LocalEngine
from loragate.engine.runtime.tenant_executor import TenantPool
from loragate.engine.sequence.output import ErrorCode, FinishReason

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", 1, None]}, "maxItems": 3},
        "home": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/place"}]},
    },
    "required": ["name", "age", "tags", "home"],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}, "flat": {"type": "boolean"}},
            "required": ["zip"],
            "additionalProperties": False,
        }
    },
}

by_one_tokenizer = pytest.mark.parametrize(
    "worded", thinned([byte_level, sentencepiece_like], fast={byte_level}), indirect=True, scope="module"
)
"""For what does not depend on how the tokenizer spells text."""


@pytest.mark.parametrize("adapter", [None, "a", "b"])
def test_a_random_model_writes_json_of_the_schema(worded: Worded, adapter: str | None) -> None:
    validator = jsonschema.Draft202012Validator(PERSON)
    requests = [worded.submit(schema(PERSON), adapter, seed=seed) for seed in range(12)]
    texts = set()
    for request in requests:
        assert worded.engine.result(request)[-1].finish is FinishReason.STOP
        texts.add(worded.text(request))
        validator.validate(json.loads(worded.text(request)))
    assert len(texts) > 10


def test_async_scheduling_generates_the_same_texts(fresh: Callable[..., Worded]) -> None:
    """A grammar determines the next token once the last one is known, which is early enough."""
    texts = []
    for late in ("off", "on"):
        worded = fresh(async_scheduling=late, max_batch_size=4)
        grammars = (schema(PERSON), None, regex("(ab|c)+d[0-9]{1,9}"))
        requests = [worded.submit(g, "a", seed=seed, max_tokens=60) for seed in range(2) for g in grammars]
        for request in requests:
            worded.engine.result(request)
        texts.append([worded.engine.tokens(request) for request in requests])
    assert texts[0] == texts[1]


def test_white_space_is_bounded(worded: Worded) -> None:
    """The bound holds even for a model that prefers blanks to everything else, and short tokens to long ones."""
    pieces = {i: piece for i in range(EOS + 1, VOCABULARY) if (piece := worded.tokenizer.id_to_token(i))}
    blanks = [i for i, piece in pieces.items() if not piece.strip("Ġ▁Ċĉ")]
    assert blanks
    long = [i for i, piece in pieces.items() if len(piece) > 1 and i not in blanks]
    bias = (*((i, 100.0) for i in blanks), *((i, -100.0) for i in long))
    bounded = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": [2]}}, "required": ["a", "b"]}
    text, last = worded.write(schema(bounded | {"additionalProperties": False}), logit_bias=bias)
    assert last.finish is FinishReason.STOP
    assert json.loads(text) == {"a": 1, "b": [2]}
    assert text == '{ "a" : 1 , "b" : [ 2 ] }'


def test_any_json_object(worded: Worded) -> None:
    ended = 0
    closing = tuple((i, 4.0) for i in range(VOCABULARY) if (worded.tokenizer.id_to_token(i) or "").endswith("}"))
    options: dict[str, Any] = {"max_tokens": 100, "logit_bias": closing}
    requests = [worded.submit(JSON_OBJECT, "a", seed=seed, **options) for seed in range(16)]
    for request in requests:
        last, text = worded.engine.result(request)[-1], worded.text(request)
        if last.finish is FinishReason.STOP:
            assert isinstance(json.loads(text), dict)
            ended += 1
        else:
            assert last.finish is FinishReason.LENGTH
            assert text.startswith("{")
    assert ended


def test_an_undeclared_property_cannot_spell_a_declared_one(worded: Worded) -> None:
    """`{"a": 1, "\\u0061": "x"}` reads as {"a": "x"}."""
    escape = worded.tokenizer.encode("\\", add_special_tokens=False).ids[-1]
    document = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}
    seen = ""
    options = {"logit_bias": ((escape, 6.0),), "max_tokens": 100}
    for request in [worded.submit(schema(document), seed=seed, **options) for seed in range(16)]:
        worded.engine.result(request)
        seen += worded.text(request)
        # A backslash that is itself escaped does not escape the "u" after it.
        assert "\\u" not in worded.text(request).replace("\\\\", "")
    assert "\\" in seen


@pytest.mark.parametrize("pattern", ["[a-c]{2,5}", "(?:yes|no|perhaps)", "-?[0-9]{1,3}(\\.[0-9]{1,2})?", "ä+ß|漢字"])
def test_a_regex_matches_the_whole_text(worded: Worded, pattern: str) -> None:
    for seed in range(5):
        text, last = worded.write(regex(pattern), seed=seed, max_tokens=100)
        if last.finish is FinishReason.STOP:
            assert re.fullmatch(pattern, text)


def test_a_choice_is_one_of_the_options(worded: Worded) -> None:
    options = ["positive", "negative", 'with "quotes"', "back\\slash", "two\nlines", "emoji 😀", "<s>", "%/|"]
    texts = set()
    for request in [worded.submit(choice_grammar(options), seed=seed, temperature=2.0) for seed in range(16)]:
        assert worded.engine.result(request)[-1].finish is FinishReason.STOP
        texts.add(worded.text(request))
    assert texts <= set(options)
    assert len(texts) > 2
    for option in options:
        assert worded.write(choice_grammar([option]))[0] == option


def test_lark(worded: Worded) -> None:
    grammar = Grammar(GrammarKind.LARK, 'start: "<call>" "(" ARG ("," ARG)? ")"\nARG: /[a-z]{1,4}/')
    text, last = worded.write(grammar)
    assert last.finish is FinishReason.STOP
    assert re.fullmatch(r"<call>\([a-z]{1,4}(,[a-z]{1,4})?\)", text)


def test_special_tokens_never_count_as_text(worded: Worded) -> None:
    """They are allowed neither by their names nor as EOS before the text is complete."""
    special = tuple((i, 100.0) for i in range(4))
    text, last = worded.write(regex("(<s>|</s>|<pad>){3}"), logit_bias=special)
    assert last.finish is FinishReason.STOP
    assert re.fullmatch("(<s>|</s>|<pad>){3}", text)
    text, last = worded.write(regex("[ab]{4,6}"), logit_bias=special, ignore_eos=True)
    assert last.finish is FinishReason.STOP
    assert re.fullmatch("[ab]{4}", text), "EOS came as soon as it was allowed"


def test_a_text_that_can_only_end_ends_without_eos(worded: Worded) -> None:
    request = worded.submit(choice_grammar(["only"]), logit_bias=((EOS, 100.0),))
    assert worded.engine.result(request)[-1].finish is FinishReason.STOP
    assert EOS not in worded.engine.tokens(request)


def test_max_tokens_truncates_a_text(worded: Worded) -> None:
    text, last = worded.write(regex("[a-z]{50}"), max_tokens=5)
    assert last.finish is FinishReason.LENGTH
    assert re.fullmatch("[a-z]{5,40}", text)


@by_one_tokenizer
def test_sampling_controls_apply_to_allowed_tokens(worded: Worded) -> None:
    token = {c: worded.tokenizer.token_to_id(c) for c in "yz"}
    letters = regex("[xyz]{6}")
    bias = tuple(sorted({token["y"]: 50.0, token["z"]: 40.0}.items()))
    assert worded.write(letters, temperature=0, logit_bias=bias)[0] == "yyyyyy"
    assert worded.write(letters, logit_bias=bias, top_k=1)[0] == "yyyyyy"
    assert worded.write(letters, logit_bias=bias, top_p=0.01)[0] == "yyyyyy"
    assert set(worded.write(letters, temperature=0, logit_bias=bias, frequency_penalty=4.0)[0]) == {"y", "z"}
    held = worded.write(regex("x{2,20}"), min_tokens=9, logit_bias=((EOS, 100.0),))
    assert held[0] == "x" * 9
    assert worded.write(regex("x{2}"), min_tokens=9, logit_bias=((EOS, 100.0),))[0] == "xx", "the grammar ends first"


@by_one_tokenizer
def test_logprobs_are_those_of_the_model(worded: Worded) -> None:
    free = worded.engine.result(worded.submit(None, temperature=0, max_tokens=1, top_logprobs=2))[0]
    held = worded.engine.result(worded.submit(regex("[0-9]"), temperature=0, max_tokens=1, top_logprobs=2))[0]
    assert free.logprob is not None
    assert held.logprob is not None
    assert held.logprob.top == free.logprob.top
    assert held.logprob.logprob < free.logprob.logprob


@by_one_tokenizer
def test_each_of_n_has_its_own_grammar_state(worded: Worded) -> None:
    request = worded.submit(schema(PERSON), n=5)
    worded.engine.result(request, 5)
    texts = [worded.text(request, index) for index in range(5)]
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)
    assert len(set(texts)) == 5


@by_one_tokenizer
def test_sequences_without_a_grammar_keep_their_tokens(worded: Worded) -> None:
    """Constrained sequences keep theirs too: all kinds, adapters and controls run in one batch."""
    free: list[tuple[str | None, dict[str, Any]]] = [
        (None, {"temperature": 0}),
        ("a", {"seed": 5}),
        ("b", {"seed": 6, "top_p": 0.9, "logit_bias": ((17, 4.0),)}),
        ("c", {"seed": 7, "repetition_penalty": 1.3, "min_tokens": 10}),
    ]
    options = {"max_tokens": 40, "ignore_eos": True}
    held = [(schema(PERSON), "a"), (JSON_OBJECT, None), (regex("[a-z ]{60}"), "d"), (choice_grammar(["x", "yy"]), "b")]
    alone = []
    for adapter, own in free:
        request = worded.submit(None, adapter, **options | own)
        worded.engine.result(request)
        alone.append(worded.engine.tokens(request))
    held_alone = [worded.write(grammar, adapter, seed=9)[0] for grammar, adapter in held]
    constrained = [worded.submit(grammar, adapter, seed=9) for grammar, adapter in held]
    together = [worded.submit(None, adapter, **options | own) for adapter, own in free]
    for request in (*together, *constrained):
        worded.engine.result(request)
    assert [worded.engine.tokens(request) for request in together] == alone
    assert [worded.text(request) for request in constrained] == held_alone


def test_a_preempted_text_continues_in_its_grammar(fresh: Callable[..., Worded]) -> None:
    grammar = schema(PERSON)
    roomy, tight = fresh(), fresh(kv_cache_tokens=208, max_model_len=200)
    options: list[dict[str, Any]] = [{"seed": seed, "max_tokens": 150} for seed in range(5)]
    alone = [roomy.write(grammar, "a", **own)[0] for own in options]
    requests = [tight.submit(grammar, "a", **own) for own in options]
    for request, text in zip(requests, alone, strict=True):
        tight.engine.result(request)
        assert tight.text(request) == text
    assert tight.engine.core.scheduler.preemptions > 0


def test_an_abort_while_the_grammar_is_compiled(fresh: Callable[..., Worded]) -> None:
    worded = fresh()
    aborted = worded.submit(schema(PERSON))
    worded.engine.abort(aborted)
    left = worded.engine.result(aborted)[-1]
    assert (left.finish, left.computed) == (FinishReason.ABORTED, None)
    kept = worded.submit(schema(PERSON))
    assert worded.engine.result(kept)[-1].finish is FinishReason.STOP
    assert not worded.engine.tokens(aborted)
    running = worded.submit(regex("[a-z]{300}"))
    worded.engine.wait_for(running, 3)
    worded.engine.abort(running)
    worded.write(choice_grammar(["x"]))
    assert not worded.engine.core.scheduler.running
    assert worded.engine.core.blocks.used == 0


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (schema({"type": "object", "not": {"required": ["a"]}}), "not"),
        (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema({"type": "string", "format": "postcode"}), "postcode"),
        (schema({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}), "uniqueItems"),
        (schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "oneOf"),
        (schema({"allOf": [{"type": "integer"}, {"type": "string"}]}), "Unsatisfiable"),
        (schema({"$ref": "http://127.0.0.1:1/schema.json"}), "retriev"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"type":'), "EOF"),
        (Grammar(GrammarKind.JSON_SCHEMA, "true"), "object"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"a":' * 500 + "1" + "}" * 500), "recursion"),
        (regex("(?=a)b"), "look"),
        (regex("(a"), "unclosed"),
        (Grammar(GrammarKind.LARK, "start: nowhere"), "nowhere"),
        (Grammar(GrammarKind.LARK, ""), "Empty"),
        (regex("a" * (grammar_compiler.MAX_TEXT_BYTES + 1)), "limit"),
        (schema({"type": "integer", "multipleOf": 99_999_989}), "too much time or memory"),
    ],
)
@by_one_tokenizer
def test_a_grammar_that_cannot_be_followed_is_rejected_with_the_reason(
    worded: Worded, grammar: Grammar, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    neighbour = worded.submit(choice_grammar(["fine"]))
    assert re.search(words, worded.rejection(grammar))
    assert re.search(words, worded.rejection(grammar)), "and again, from what was kept"
    worded.engine.result(neighbour)
    assert worded.text(neighbour) == "fine"
    assert not re.search("Warning|panic|Traceback", capfd.readouterr().err)


@by_one_tokenizer
def test_a_grammar_too_complex_to_follow_ends_its_own_request(worded: Worded) -> None:
    """The grammar compiles; computing its first mask exceeds the limit."""
    neighbour = worded.submit(regex("[a-z]{40}"))
    last = worded.engine.result(worded.submit(regex("(a?){5000}a{5000}")))[-1]
    assert last.error is not None
    assert last.error[0] is ErrorCode.INVALID_REQUEST
    assert "too" in last.error[1]
    assert worded.engine.result(neighbour)[-1].finish is FinishReason.STOP


def test_an_engine_without_the_library_says_so(fresh: Callable[..., Worded], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    assert "install llguidance" in fresh().rejection(JSON_OBJECT)


def test_a_model_without_a_tokenizer_says_so(start: Callable[..., LocalEngine]) -> None:
    engine = start()
    last = engine.result(engine.submit([1, 2], grammar=JSON_OBJECT))[-1]
    assert last.error is not None
    assert "tokenizer.json" in last.error[1]
    assert engine.generate([1, 2], max_tokens=2)


@by_one_tokenizer
def test_speculation_changes_no_text(worded: Worded) -> None:
    again = schema({"type": "array", "items": {"enum": ["again", "and again"]}, "minItems": 12, "maxItems": 12})
    for adapter in (None, "a"):
        plain, _ = worded.write(again, adapter, seed=3)
        guessed, last = worded.write(again, adapter, seed=3, draft_tokens=4)
        assert guessed == plain
        assert last.finish is FinishReason.STOP
    assert worded.engine.core.metrics.spec_decode_accepted_tokens > 0


def test_a_vocabulary_that_cannot_write_the_text_says_so(fresh: Callable[..., Worded], tmp_path: Path) -> None:
    bare = byte_level()
    document = json.loads(bare.to_str())
    document["model"]["vocab"] = {piece: i for piece, i in document["model"]["vocab"].items() if "z" not in piece}
    document["model"]["merges"] = []
    worded = Worded(tmp_path, Tokenizer.from_str(json.dumps(document)))
    try:
        for grammar in (choice_grammar(["zoo"]), regex("z+"), choice_grammar(["a zoo"])):
            last = worded.engine.result(worded.submit(grammar))[-1]
            assert last.error is not None
            assert "vocabulary has no tokens" in last.error[1]
        assert worded.write(choice_grammar(["a cat"]))[0] == "a cat"
    finally:
        worded.engine.close()


def test_a_tenants_flood_of_grammars_does_not_delay_another_tenants() -> None:
    """With one thread, the second tenant's only grammar follows the current one, not the whole flood."""
    pool, order, begun, go = TenantPool(1, "test"), list[str](), threading.Event(), threading.Event()
    pool.submit("flood", lambda: (begun.set(), go.wait(), order.append("first"))[0])
    begun.wait()
    for i in range(50):
        pool.submit("flood", lambda i=i: order.append(f"flood {i}"))
    done = threading.Event()
    pool.submit("other", lambda: (order.append("other"), done.set())[1])
    go.set()
    done.wait(60)
    pool.close()
    assert order.index("other") <= 2


def test_a_tenants_grammars_evict_only_its_own() -> None:
    """Another tenant's could otherwise be thrown out, and its use of a grammar be known from the time that it takes."""
    cache, compiled = GrammarCache(size=6, size_per_tenant=5), GrammarRejected("as good as any")
    cache.put("quiet", regex("mine"), compiled)
    assert cache.get("loud", regex("mine")) is None
    for number in range(100):
        cache.put("loud", regex(str(number)), compiled)
    assert cache.get("quiet", regex("mine")) is compiled
    kept = [number for number in range(100) if cache.get("loud", regex(str(number)))]
    assert kept == [95, 96, 97, 98, 99]
    for number in range(3):
        cache.put("third", regex(str(number)), compiled)
    assert cache.get("quiet", regex("mine")) is compiled
    assert [number for number in kept if cache.get("loud", regex(str(number)))] == [98, 99], "it had the most"


def test_a_trial_gives_way_to_the_engine() -> None:
    script = Path(grammar_trial.__file__)
    with subprocess.Popen([sys.executable, "-I", str(script)], stdin=subprocess.PIPE) as trial:
        wanted = os.getpriority(os.PRIO_PROCESS, 0) + grammar_trial.NICENESS
        deadline = time.monotonic() + 60
        while os.getpriority(os.PRIO_PROCESS, trial.pid) != wanted:
            assert trial.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        trial.kill()


def test_one_tenants_trials_take_one_thread() -> None:
    """The other thread is free for other tenants while a trial takes its seconds."""
    compiler = GrammarCompiler(TokenSpace(b"", 1, frozenset()), 1)
    begun, go, done = threading.Semaphore(0), threading.Event(), threading.Event()
    try:
        for _ in range(2):
            compiler._pool.submit("flood", lambda: (begun.release(), go.wait(60))[0])
        begun.acquire()
        compiler.compile("other", regex("a"), lambda _: done.set())
        assert done.wait(60)
        assert not begun.acquire(blocking=False), "its second one waits"
    finally:
        go.set()
        compiler.close()


def test_grammars_of_clients_that_left_are_not_compiled(
    fresh: Callable[..., Worded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial takes seconds of a processor; requests that are sent and abandoned would add up to hours."""
    tried, begun, go = list[str](), threading.Event(), threading.Event()
    really = grammar_compiler._compile_in_trial

    def trial(text: str) -> None:
        tried.append(text)
        begun.set()
        assert go.wait(60)
        really(text)

    monkeypatch.setattr(grammar_compiler, "_compile_in_trial", trial)
    worded = fresh()
    first = worded.submit(choice_grammar(["a"]))
    assert begun.wait(60)
    abandoned = [worded.submit(choice_grammar([word])) for word in ("b", "c")]
    for request in abandoned:
        worded.engine.abort(request)
        worded.engine.result(request)
    again, last = worded.submit(choice_grammar(["c"])), worded.submit(choice_grammar(["d"]))
    go.set()
    for request in (first, again, last):
        assert worded.engine.result(request)[-1].finish is FinishReason.STOP
    assert [next(word for word in "abcd" if f'"{word}"' in text) for text in tried] == ["a", "c", "d"]


def test_each_tenant_has_its_equal_grammars_compiled_once(
    fresh: Callable[..., Worded], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    really = grammar_compiler._compile_in_trial
    monkeypatch.setattr(grammar_compiler, "_compile_in_trial", lambda text: (tried.append(text), really(text))[1])
    worded = fresh()
    requests = [worded.submit(choice_grammar(["a", "b"]), name) for name in (None, "a", "b", "a")]
    for request in requests:
        worded.engine.result(request)
    worded.write(choice_grammar(["a", "b"]))
    worded.write(choice_grammar(["a", "c"]))
    assert len(tried) == 2
    others = [worded.submit(choice_grammar(["a", "b"]), tenant="other") for _ in range(2)]
    for request in others:
        worded.engine.result(request)
    assert len(tried) == 3, "nothing tells the other tenant that somebody uses it"
