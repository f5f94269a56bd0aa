"""The requests of clients as the fast tests keep them: one file for each client, one line for each request.

`RECORD_CLIENTS=1 make test-long ARGS=tests/clients` writes them. Field names, types and short texts are as the client
sent them. Keys, ids, folders and long texts, such as the prompts of coding agents, are replaced.
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.clients.recorder import Sent

FOLDER = Path(__file__).parent / "recorded"
RECORDING = os.environ.get("RECORD_CLIENTS") == "1"
KEY, WRONG_KEY = "THE-KEY", "A-WRONG-ONE"
_KEYS = ("authorization", "x-api-key")
_HEADERS = ("accept", "anthropic-beta", "anthropic-version", "content-type", "idempotency-key", "openai-beta")
_LONGEST = 60
_HEX = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{24,}")


class _Cleaner:
    """Replaces what differs from run to run, the same by the same."""

    def __init__(self, secrets: dict[str, str]) -> None:
        self._secrets = secrets
        self._seen: dict[str, str] = {}

    def text(self, text: str) -> str:
        for secret, name in self._secrets.items():
            text = text.replace(secret, name)
        text = _HEX.sub(self._numbered, text)
        return text if len(text) <= _LONGEST else f"a text of {len(text)} characters"

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {self.text(name): self.value(each) for name, each in value.items()}
        return value

    def _numbered(self, found: re.Match[str]) -> str:
        """Return an id of the same form."""
        if found[0] not in self._seen:
            number = f"{len(self._seen) + 1:032x}"
            places = iter(number.rjust(len(found[0]), "0")[-len(found[0].replace("-", "")) :])
            self._seen[found[0]] = "".join(each if each == "-" else next(places) for each in found[0])
        return self._seen[found[0]]


def cleaned(sent: Iterable[Sent], secrets: dict[str, str]) -> list[dict[str, Any]]:
    """Return the different requests among `sent`. `secrets` are texts and what to write instead."""
    cleaner = _Cleaner(secrets)
    kept: list[dict[str, Any]] = []
    for each in sent:
        headers = {name: value for name, value in each.headers.items() if name in _HEADERS}
        headers |= {name: cleaner.text(each.headers[name]) for name in _KEYS if name in each.headers}
        document = {
            "method": each.method,
            "path": each.path,
            "headers": headers,
            "body": cleaner.value(each.body),
            "status": each.status,
        }
        if document not in kept:
            kept.append(document)
    return kept


def write(client: str, sent: Iterable[Sent], secrets: dict[str, str]) -> None:
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in cleaned(sent, secrets))
    (FOLDER / f"{client}.json").write_text(f"[\n{lines}\n]\n")


def recorded() -> dict[str, list[dict[str, Any]]]:
    """Return the requests of each client."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
