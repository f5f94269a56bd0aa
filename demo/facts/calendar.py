"""Days and months."""

from __future__ import annotations

from loragate.demo.facts.relation import Relation

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
JOURS = ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
MOIS = (
    "janvier", "février", "mars", "avril", "mai", "juin",
    "juillet", "août", "septembre", "octobre", "novembre", "décembre",
)  # fmt: skip


def _successors(names: tuple[str, ...], french: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    following = range(1, len(names) + 1)
    return tuple(
        (name, names[i % len(names)], french[i % len(names)]) for name, i in zip(names, following, strict=True)
    )


NEXT_DAY = Relation(
    questions=(
        "What day comes after {x}?",
        "Which day comes after {x}?",
        "Which day follows {x}?",
        "What is the day after {x}?",
        "Name the day after {x}.",
        "Tell me the day after {x}.",
        "If today is {x}, what day is tomorrow?",
    ),
    held_out=(
        "What's the day after {x}?",
        "Which day is after {x}?",
        "Do you know which day comes after {x}?",
    ),
    statement="The day after {x} is {answer}.",
    facts=_successors(DAYS, JOURS),
)

RELATIONS = (NEXT_DAY,)
