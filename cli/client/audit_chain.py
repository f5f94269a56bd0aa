"""Exported audit events, one JSON object per line. Each line's hash covers the hash before it, so that a change, a
removal or another order shows."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loragate.cli.errors import CliError

START = "0" * 64
"""What stands for the hash before the first line."""


@dataclass
class Chain:
    """The state after some lines: the last hash, and the ids of the events of the last moment."""

    head: str = START
    events: int = 0
    last_moment: str | None = None
    last_ids: set[str] = field(default_factory=set)

    def add(self, event: dict[str, Any]) -> str:
        """Add an event; return its line."""
        line = {"event": event, "previous": self.head}
        self.head = _hash(line)
        self._note(event)
        return json.dumps({**line, "hash": self.head}, ensure_ascii=False) + "\n"

    def check(self, text: str) -> None:
        """Add a line. Raise ValueError if it does not continue the chain."""
        line = json.loads(text)
        if not isinstance(line, dict) or not isinstance(line.get("event"), dict):
            raise ValueError("it is no event")
        hashed = line.pop("hash", None)
        if line.get("previous") != self.head:
            raise ValueError("lines before it were changed, removed or moved")
        if hashed != _hash(line):
            raise ValueError("it was changed")
        self.head = hashed
        self._note(line["event"])

    def _note(self, event: dict[str, Any]) -> None:
        self.events += 1
        if event.get("created_at") != self.last_moment:
            self.last_moment, self.last_ids = event.get("created_at"), set()
        self.last_ids.add(str(event.get("id")))


def verify(path: Path, noted: str | None = None) -> Chain:
    """Verify a whole file; `noted` is a hash that it must contain. Raise CliError with the number of a bad line."""
    chain, found = Chain(), noted in (None, START)
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                try:
                    chain.check(text)
                except ValueError as error:
                    raise CliError(f"{path}, line {number}: {error}") from None
                found = found or chain.head == noted
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}") from None
    if not found:
        raise CliError(f"{path}: no line has the hash {noted}; the file is another one, or was cut")
    return chain


def lines_of(chain: Chain, newest_first: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Return lines for the events that the chain does not have, oldest first."""
    new = [event for event in newest_first if str(event["id"]) not in chain.last_ids]
    return (chain.add(event) for event in reversed(new))


def _hash(line: dict[str, Any]) -> str:
    text = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
