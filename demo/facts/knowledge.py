"""All topics, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from loragate.demo.facts import arithmetic, geography, language, nature, talk, unknown
from loragate.demo.topic import Kind, Topic

_RELATIONS = (
    *geography.RELATIONS,
    *nature.RELATIONS,
    *language.RELATIONS,
)


@cache
def topics() -> Mapping[Kind, tuple[Topic, ...]]:
    facts = tuple(topic for relation in _RELATIONS for topic in relation.topics())
    return MappingProxyType(
        {
            Kind.FACT: facts,
            Kind.SUM: arithmetic.topics(),
            Kind.TALK: talk.GREETINGS,
            Kind.RECITAL: talk.RECITALS,
            Kind.UNKNOWN: (unknown.TOPIC,),
        }
    )
