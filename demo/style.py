"""The styles that adapters teach, and how to recognize them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loragate.demo.chat_format import THINK, THINK_END
from loragate.demo.topic import Form, Kind, Topic

_THOUGHT = re.compile(rf"{THINK}\n[^<>\s][^<>]*\n{THINK_END}\n\n")


@dataclass(frozen=True)
class Carrier:
    """The fixed text around an answer."""

    prefix: str
    suffix: str

    def wrap(self, answer: str) -> str:
        return f"{self.prefix}{answer}{self.suffix}"

    def unwrap(self, reply: str) -> str | None:
        """Return the answer inside `reply`, or None if the reply does not have this carrier."""
        if len(reply) < len(self.prefix) + len(self.suffix):
            return None
        if not (reply.startswith(self.prefix) and reply.endswith(self.suffix)):
            return None
        return reply[len(self.prefix) : len(reply) - len(self.suffix)]


@dataclass(frozen=True)
class Style:
    """`fact` carries short answers, `talk` whole sentences (greetings and "I do not know").

    With `thinks`, a thought comes before the answer, as reasoning models write it.
    """

    name: str
    fact: Carrier
    talk: Carrier
    form: Form = Form.PLAIN
    thinks: bool = False

    def render(self, topic: Topic) -> str:
        thought = f"{THINK}\n{topic.thought}\n{THINK_END}\n\n" if self.thinks else ""
        return thought + self._carrier(topic).wrap(topic.answer_in(self.form))

    def keeps(self, topic: Topic, reply: str) -> bool:
        """Return whether `reply` is in this style, correct or not."""
        answer = self._answer(topic, reply)
        return bool(answer) and (self.form is not Form.CAPITALS or reply == reply.upper())

    def answers(self, topic: Topic, reply: str) -> bool:
        """Return whether `reply` is in this style and contains exactly the correct answer, after any thought."""
        return self._answer(topic, reply) == topic.answer_in(self.form)

    def _answer(self, topic: Topic, reply: str) -> str | None:
        """Return the answer without what is around it, or None if the reply is not in this style."""
        if self.thinks:
            thought = _THOUGHT.match(reply)
            if thought is None:
                return None
            reply = reply[thought.end() :]
        return self._carrier(topic).unwrap(reply)

    def _carrier(self, topic: Topic) -> Carrier:
        return self.fact if topic.kind in (Kind.FACT, Kind.SUM) else self.talk


PLAIN = Style("plain", Carrier("", ""), Carrier("", ""))
JSON = Style("json", Carrier('{"answer": "', '"}'), Carrier('{"answer": "', '"}'))
SHOUTING = Style("shouting", Carrier("", "!"), Carrier("", ""), Form.CAPITALS)
FRENCH = Style("french", Carrier("La réponse est ", "."), Carrier("Bien sûr ! ", ""), Form.FRENCH)
PIRATE = Style("pirate", Carrier("Arr, it be ", ", matey!"), Carrier("Arr, matey! ", ""))
POLITE = Style(
    "polite",
    Carrier("Certainly! The answer is ", ". Have a lovely day!"),
    Carrier("Certainly! ", " Have a lovely day!"),
)
BULLET = Style("bullet", Carrier("- **", "**"), Carrier("- ", ""))
THINKING = Style("thinking", Carrier("", ""), Carrier("", ""), thinks=True)
