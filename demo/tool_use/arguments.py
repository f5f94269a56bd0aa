"""Cities and calculations: what questions ask about. Training has those of one half of each, and invented names."""

from __future__ import annotations

import random
import re
from functools import cache

from loragate.demo.facts.knowledge import topics

CITIES = (
    "Paris", "London", "Berlin", "Rome", "Madrid", "Tokyo", "Cairo", "Athens", "Lisbon", "Warsaw", "Ottawa", "Havana",
    "New York", "San Francisco", "Los Angeles", "Chicago", "Boston", "Seattle", "Miami", "Denver",
    "Toronto", "Mexico City", "Amsterdam", "Brussels", "Vienna", "Prague", "Zurich", "Munich", "Hamburg", "Barcelona",
    "Milan", "Naples", "Dublin", "Oslo", "Stockholm", "Moscow", "Istanbul", "Dubai", "Mumbai", "Delhi", "Beijing",
    "Shanghai", "Hong Kong", "Seoul", "Sydney", "Cape Town", "Nairobi", "Lagos", "Buenos Aires", "Rio de Janeiro",
    "Lima", "Bogota", "SF", "NYC",
)  # fmt: skip
HELD_OUT_CITIES = (
    "Helsinki", "Copenhagen", "Budapest", "Bangkok", "Singapore", "Melbourne", "Montreal", "Porto", "Geneva",
    "Edinburgh", "Santiago", "Hanoi", "Manila", "Salt Lake City", "San Diego", "Kuala Lumpur", "Reykjavik", "Ankara",
)  # fmt: skip

_ONSETS = ("b", "br", "c", "ch", "d", "f", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "qu", "r", "s", "sh", "st",
           "t", "th", "tr", "v", "w", "x", "y", "z", "")  # fmt: skip
_NUCLEI = ("a", "e", "i", "o", "u", "ai", "ea", "ou", "y", "é", "ü")
_CODAS = ("", "", "", "n", "r", "s", "l", "m", "ck", "nd", "rg", "st", "t")
_INVENTED_SHARE = 0.7
_FRAGMENT = (2, 5)  # letters


def city(rng: random.Random) -> str:
    """Return a city to train on. Most are invented, so that the model learns to copy names rather than to know them."""
    if rng.random() >= _INVENTED_SHARE:
        return rng.choice(CITIES)
    return " ".join(invented_name(rng, rng.choice((1, 2, 2, 3, 3))) for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3))))


def invented_name(rng: random.Random, syllables: int) -> str:
    """Return a name that starts with a capital letter: syllables, or as often fragments of words.

    The fragments have the pairs of letters that real names have, of which the tokenizer makes tokens. A token that is
    never copied in training would not be copied in use.
    """
    if rng.random() < 0.5:
        parts = [_fragment(rng) for _ in range((syllables + 1) // 2)]
    else:
        parts = [rng.choice(_ONSETS) + rng.choice(_NUCLEI) + rng.choice(_CODAS) for _ in range(syllables)]
    return "".join(parts).capitalize()


def _fragment(rng: random.Random) -> str:
    word, length = rng.choice(_words()), rng.randint(*_FRAGMENT)
    start = rng.choice((0, rng.randrange(len(word))))
    return word[start : start + length]


@cache
def _words() -> tuple[str, ...]:
    """Return the words of the questions and answers that the model knows."""
    every = (topic for group in topics().values() for topic in group)
    texts = (text for topic in every for text in (*topic.questions, topic.answer))
    return tuple(sorted({word.lower() for text in texts for word in re.findall(r"[^\W\d_]{2,}", text)}))


def number(rng: random.Random) -> str:
    """Return a number of one to three digits."""
    return str(rng.randrange(1, 10 ** rng.choice((1, 2, 2, 3, 3))))
