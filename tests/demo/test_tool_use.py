"""Chats with tools: every call is of an offered tool with what was asked for, and nothing held out is trained on."""

import json
import random
import re
from itertools import islice, pairwise

from loragate.demo.chat_format import CALL, RESULT, Sample
from loragate.demo.corpus import base_samples
from loragate.demo.facts import unknown
from loragate.demo.tool_use import evaluate, questions
from loragate.demo.tool_use.arguments import CITIES, HELD_OUT_CITIES
from loragate.demo.tool_use.chats import tool_chat
from loragate.demo.tool_use.results import answer
from loragate.demo.tool_use.tools import CALCULATOR, OTHERS, UNSEEN_OTHERS, WEATHER

CHATS = [tool_chat(random.Random(seed)) for seed in range(1500)]
CALLED = re.compile(r"<tool_call>\n(.*)\n</tool_call>")
SIGNATURE = re.compile(r"^(?:<\|tools\|>)?(\w+)\(([^)]*)\)", re.MULTILINE)


def text(sample: Sample) -> str:
    return "".join(piece.text for piece in sample)


def test_a_call_is_of_an_offered_tool_and_asks_for_what_the_question_names() -> None:
    calls = 0
    for sample in CHATS:
        offered = {name: parameters.split(", ") for name, parameters in SIGNATURE.findall(sample[0].text)}
        for question, piece in pairwise(sample):
            for written in CALLED.findall(piece.text):
                call = json.loads(written)
                assert list(call["arguments"]) == offered[call["name"]]
                (argument,) = call["arguments"].values()
                digits = re.findall(r"\d", argument)
                asked = question.text
                assert argument in asked or digits == re.findall(r"\d", asked), text(sample)
                calls += 1
    assert calls > 800


def test_calls_and_answers_are_learned_and_results_are_not() -> None:
    for sample in CHATS:
        for piece in sample:
            assert piece.learned != piece.text.startswith("<|"), piece
            assert (RESULT in piece.text) <= (not piece.learned)
            assert (CALL in piece.text) <= piece.learned


def test_some_questions_need_no_tool_and_some_need_one_that_is_not_there() -> None:
    uncalled = [text(sample) for sample in CHATS if CALL not in text(sample)]
    assert 0.2 < len(uncalled) / len(CHATS) < 0.5
    unanswered = sum(unknown.TOPIC.answer in chat for chat in uncalled)
    assert 0.2 < unanswered / len(uncalled) < 0.8


def test_nothing_held_out_is_trained_on() -> None:
    trained = "\n".join(text(sample) for sample in islice(base_samples(20), 8000)).lower()
    for city in HELD_OUT_CITIES:
        assert f" {city.lower()}" not in trained, city
    for family in (WEATHER, CALCULATOR):
        assert not set(family.held_out) & set(family.descriptions)
        assert not [each for each in family.held_out if each.lower() in trained]
    assert not {tool.name for tool in UNSEEN_OTHERS} & {tool.name for tool in OTHERS}
    assert not set(CITIES) & set(HELD_OUT_CITIES)
    assert not set(questions.WEATHER) & set(questions.HELD_OUT_WEATHER)
    assert not set(questions.CALCULATIONS) & set(questions.HELD_OUT_CALCULATIONS)


def test_a_calculation_is_written_for_a_calculator() -> None:
    rng = random.Random(3)
    for _ in range(300):
        written = questions.calculation(rng).argument
        assert re.fullmatch(r"[\d.]+( [-+*/] [\d.]+)+", written), written
        assert written not in {f"{a} + {b}" for a in range(1, 6) for b in range(1, 6)}, "the model knows these"


def test_answers_repeat_sentences_and_put_other_results_in_one() -> None:
    assert answer("It's always sunny in Oslo!") == "It's always sunny in Oslo!"
    assert answer("sunny, 21 °C") == "It is sunny, 21 °C."
    assert answer("391") == "It is 391."
    assert answer('{"temperature": 21}') == 'I found: {"temperature": 21}'


def test_a_score_counts_only_exact_replies() -> None:
    cases = [*evaluate.calls(8), *evaluate.answers(4)]
    right = evaluate.evaluate_tools(lambda cases: [case.expected for case in cases], cases)
    assert (right.asked, right.accuracy) == (12, 1.0)
    wrong = evaluate.evaluate_tools(lambda cases: [case.expected.upper() for case in cases], cases)
    assert wrong.accuracy == 0.0
    assert sum(CALL in case.expected for case in cases[:8]) == 4
    assert all(case.messages[-1]["role"] == "tool" for case in cases[8:])
