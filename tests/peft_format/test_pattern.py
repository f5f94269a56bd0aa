"""Users' regular expressions: `re` is the oracle where it is fast enough; elsewhere they must be rejected."""

import random
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.patterns.pattern import FullPattern, SuffixPattern

NAMES = st.lists(st.sampled_from(["a", "b", "ab", "q_proj", "0", "12", "-", "layers"]), min_size=1, max_size=5).map(
    ".".join
)


def _repeated(atoms: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(
        ["", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{,2}", "{0,3}?", "{1,2}", "{2,3}"]
    )
    groups = st.tuples(
        st.sampled_from(["(", "(?:", "(?P<x>"]), st.lists(atoms, max_size=3), st.lists(atoms, max_size=2)
    )
    grouped = groups.map(lambda g: f"{g[0]}{''.join(g[1])}{'|' + ''.join(g[2]) if g[2] else ''})")
    return st.tuples(st.one_of(atoms, grouped), repeats).map("".join)


ATOMS = st.sampled_from(
    [
        *("a", "b", "q_proj", "0", "1", "layers", "_", "-", "]", "."),
        *(r"\.", r"\d", r"\w", r"\D", r"\W", r"\S", r"\s"),
        *("[ab]", "[^ab]", r"[\d_]", "[a-z]", "[^a-y.]", r"[\w.]", "[]a]", "[a-]", r"[^\W]", r"[\]\-a]"),
    ]
)
ANCHORS = st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\Z", ""])
PATTERNS = st.lists(st.one_of(st.recursive(ATOMS, _repeated, max_leaves=4), ANCHORS), min_size=1, max_size=5).flatmap(
    lambda parts: st.sampled_from(["".join(parts), "|".join(parts), ".*" + "".join(parts), "".join(parts) + ".*"])
)


@settings(max_examples=600, deadline=None)
@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=6))
def test_whole_name_matches_are_those_of_re(text: str, names: list[str]) -> None:
    try:
        expected = re.compile(text)
    except re.error:
        assume(False)
    try:
        pattern = FullPattern(text, "target_modules", Budget())
    except AdapterRejected:
        assume(False)
    for name in names:
        assert pattern.matches(name) == bool(expected.fullmatch(name)), (text, name)


@settings(max_examples=600, deadline=None)
@given(
    st.one_of(PATTERNS, NAMES, NAMES.map(lambda name: f"^{name}$"), NAMES.map(re.escape)),
    st.lists(NAMES, min_size=1, max_size=6),
)
def test_suffix_matches_are_those_of_re(text: str, names: list[str]) -> None:
    try:
        re.compile(text)
        expected = re.compile(rf"(.*\.)?({text})$")
    except re.error:
        assume(False)
    try:
        pattern = SuffixPattern(text, "rank_pattern", Budget())
    except AdapterRejected:
        assume(False)
    for name in names:
        assert pattern.matches(name) == bool(expected.match(name)), (text, name)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab.*+?{}[]()|^$\\d,1-:<>P="), max_size=30), NAMES)
def test_any_text_is_a_pattern_or_rejected(text: str, name: str) -> None:
    try:
        found = FullPattern(text, "target_modules", Budget()).matches(name)
    except AdapterRejected:
        return
    assert found == bool(re.fullmatch(text, name))


@pytest.mark.parametrize(
    "text",
    [
        "(a",
        "a)",
        "[a",
        "[z-a]",
        "*a",
        "a**",
        "a{2}{3}",
        "a*+",
        "a++",
        "a{1001}",
        "a{3,2}",
        "a{",
        "{2}",
        "a{99999999999999999999}",
        "a{" + "9" * 5_000 + "}",
        "a\\",
        r"(a)\1",
        r"(?P<x>a)(?P=x)",
        "(?=a)b",
        "(?!a)b",
        "(?<=a)b",
        "(?i)a",
        "(?i:a)",
        "(?>a)",
        "(?#note)a",
        "(?(1)a|b)",
        r"\x41",
        r"\N{BULLET}",
        "[[a]]",
        "[[\x00]",
        "[a--b]",
        "(?",
        "(?P<",
        "^*a",
        "(" * 5_000 + ")" * 5_000,
    ],
)
def test_unbounded_or_unreadable_patterns_are_rejected_with_the_field(text: str) -> None:
    for kind in (FullPattern, SuffixPattern):
        with pytest.raises(AdapterRejected) as caught:
            kind(text, "exclude_modules", Budget())
        assert caught.value.param == "adapter_config.json: exclude_modules"
        assert len(caught.value.message) < 500
        assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$",
        "(a*)*b",
        "(a|a)*b",
        "(a|aa)+$",
        "(.*a){12}",
        "(?:a?){30}a{30}b",
        ".*.*.*.*.*.*.*.*x",
        "(([a-z])+.)+[A-Z]",
    ],
)
def test_patterns_with_exponential_time_in_re_are_matched_quickly(text: str) -> None:
    assert not FullPattern(text, "target_modules", Budget()).matches("a" * 60 + "!")


@pytest.mark.parametrize(
    "text",
    [
        "(((a{1000}){1000}){1000}){1000}",
        "((((){1000}){1000}){1000}){1000}",
        "(((a?){1000}){1000}){1000}",
        "(a|b|c|d){1000}" * 100,
        "[ab]*a[ab]{30}c",
    ],
)
def test_patterns_that_need_too_much_work_are_rejected(text: str) -> None:
    rng = random.Random(0)
    names = ["".join(rng.choices("ab", k=200)) for _ in range(2_000)]

    with pytest.raises(AdapterRejected, match="too much work"):
        match_all([text], names, Budget())


def test_the_budget_is_shared() -> None:
    texts = [f"a{number}+" for number in range(8)]
    names = ["model.layers.0.self_attn.q_proj"] * 20

    match_all(texts[:1], names, Budget(5_000))
    with pytest.raises(AdapterRejected, match="too much work"):
        match_all(texts, names, Budget(5_000))


def test_a_repeated_name_still_costs_its_length() -> None:
    with pytest.raises(AdapterRejected, match="too much work"):
        match_all(["a+"], ["a" * 100] * 50, Budget(5_000))


def match_all(texts: list[str], names: list[str], budget: Budget) -> None:
    for pattern in [SuffixPattern(text, "rank_pattern", budget) for text in texts]:
        for name in names:
            pattern.matches(name)
