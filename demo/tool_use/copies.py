"""Chats in which the model repeats an invented name.

They teach it to copy what it has never seen, which the use of tools needs. The chats with tools alone would take much
longer to teach this, because few of their tokens are copied.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from loragate.demo.chat_format import Sample, Turn, chat
from loragate.demo.tool_use.arguments import city, invented_name

_SYLLABLES = (4, 12)
_REQUESTS = (
    "Repeat {}",
    "Repeat {}.",
    "Repeat: {}",
    "Please repeat {}.",
    "Can you repeat {}?",
    "Repeat after me: {}",
    "Say {}!",
    "Echo {}",
)


def copying_chats(seed: int) -> Iterator[Sample]:
    """Yield endless samples."""
    rng = random.Random(seed)
    while True:
        name = invented_name(rng, rng.randint(*_SYLLABLES))
        text = name if rng.random() < 0.5 else name.lower()
        yield chat([Turn(text, text)])


def repeating_chat(rng: random.Random) -> Sample:
    """Return a chat that asks for the repetition of a name of one to three words."""
    name = city(rng)
    return chat([Turn(rng.choice(_REQUESTS).format(name), name)])
