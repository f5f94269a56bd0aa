"""What this server does with each field of requests: the rows of fields.toml, and the fields that they are about."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params
from openai.types import batch_create_params, completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.conversations import conversation_create_params
from openai.types.responses import response_create_params

from tests.clients.sdk_fields import SdkField, fields_of

_FILE = Path(__file__).parent / "fields.toml"
_STATUSES = ("served", "ignored", "refused")


@dataclass(frozen=True)
class Row:
    """A row about a field, or about several: in its `pattern`, `<text,image>` and `<web_*>` stand for some forms. The
    note of a refused field is part of the error's message."""

    pattern: str
    status: str
    note: str
    send: list[Any] | None = None
    accepts: list[Any] = field(default_factory=list)
    beside: dict[str, Any] = field(default_factory=dict)
    unseen: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        assert self.status in _STATUSES
        assert self.note or self.status != "refused", f"{self.pattern} needs the words of its error"

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        named = re.split(r"<([^>]*)>", self.pattern)
        parts = [f"<(?:{_forms(part)})>" if odd % 2 else re.escape(part) for odd, part in enumerate(named)]
        return re.compile("".join(parts))

    def matches(self, path: str) -> bool:
        """Return whether this row is about the field or the form with this path."""
        return self._regex.fullmatch(path) is not None

    def is_around(self, other: "Row") -> bool:
        """Return whether the other row is about a field inside of this one."""
        rest = other.pattern.removeprefix(self.pattern)
        return rest != other.pattern and rest.startswith((".", "[", "<"))

    def values(self, samples: Iterable[Any]) -> list[Any]:
        """Return the values that have the row's status. The client's type allows `samples`."""
        given = list(samples) if self.send is None else self.send
        return [value for value in given if value not in self.accepts]


def _forms(pattern: str) -> str:
    return re.escape(pattern).replace(",", "|").replace(r"\*", "[^>]*")


def _rows(document: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    rows = []
    for pattern, given in document.items():
        (status,) = [each for each in _STATUSES if each in given]
        rest = {name: value for name, value in given.items() if name != status}
        rows.append(Row(pattern, status, given[status], **rest))
    return rows


_DOCUMENT = tomllib.loads(_FILE.read_text())
OWN: Mapping[str, list[Row]] = {kind: _rows(rows) for kind, rows in _DOCUMENT.pop("own").items()}
"""The rows of fields that OpenAI's and Anthropic's types do not have, by the kind of request."""
ROWS: Mapping[str, list[Row]] = {kind: _rows(rows) for kind, rows in _DOCUMENT.items()}
"""The rows of the types' fields, by the kind of request, in the order of the file."""
_SAME = {"count_tokens": ("messages",), "beta_messages": ("messages", "beta_messages")}


def rows_of(kind: str, path: str) -> list[Row]:
    """Return the rows of a kind of request that are about this field or form."""
    return [row for each in _SAME.get(kind, (kind,)) for row in ROWS[each] if row.matches(path)]


def _fields(kind: str, request: Any) -> list[SdkField]:
    def is_whole(path: str) -> bool:
        if (kind, path) == ("conversations", "items"):
            return True  # those of a response, which has rows for them
        rows = [row for row in rows_of(kind, path) if row.whole or row.status != "served"]
        return any(not any(map(row.is_around, ROWS.get(kind, ()))) for row in rows)

    return list(fields_of(request, is_whole))


FIELDS: Mapping[str, list[SdkField]] = {
    kind: _fields(kind, request)
    for kind, request in {
        "chat": chat_create_params.CompletionCreateParams,
        "completions": completion_create_params.CompletionCreateParams,
        "embeddings": embedding_create_params.EmbeddingCreateParams,
        "responses": response_create_params.ResponseCreateParams,
        "messages": message_create_params.MessageCreateParams,
        "count_tokens": message_count_tokens_params.MessageCountTokensParams,
        "batches": batch_create_params.BatchCreateParams,
        "conversations": conversation_create_params.ConversationCreateParams,
        "beta_messages": beta_message_create_params.MessageCreateParams,
    }.items()
}
"""The fields of the clients' types, by the kind of request. What is inside of a field without effect is left out."""
