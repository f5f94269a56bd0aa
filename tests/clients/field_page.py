"""The page of the documentation with all fields, written from fields.toml."""

from collections.abc import Iterable, Mapping

from tests.clients.field_rows import OWN, ROWS, Row

_KINDS: Mapping[str, str] = {
    "chat": "POST /v1/chat/completions",
    "completions": "POST /v1/completions",
    "embeddings": "POST /v1/embeddings",
    "responses": "POST /v1/responses",
    "batches": "POST /v1/batches",
    "conversations": "POST /v1/conversations",
    "messages": "POST /v1/messages, POST /v1/messages/count_tokens",
    "beta_messages": "Further fields of Anthropic's beta types",
}
_HEAD = """\
# Fields of requests

Find out what this server does with a field that OpenAI's or Anthropic's client sends. A field is *served*, or *ignored*
because it changes nothing in the answer, or *refused* with a 400 that names it and says what to do. Null counts as
absent. A field that is not listed here is refused.

`[]` is an item of a list, and `<text>` an object of this `type` or `role`; `<*>` is one of any. The fields inside of
one that is ignored or refused are not listed.

This page is written from `tests/clients/fields.toml` by `FIELDS_PAGE=1 make test ARGS=tests/clients/test_fields.py`.
Tests compare the file with the clients' own types, and send each field to a server.
"""
_TABLE = ["| field | status | |", "|---|---|---|"]


def page_of() -> str:
    """Return the page."""
    parts = [_HEAD]
    for kind, title in _KINDS.items():
        parts.append("\n".join([f"## {title}", "", *_TABLE, *_lines(ROWS[kind]), ""]))
        if kind in OWN:
            parts.append("\n".join(["Not in the client's types:", "", *_TABLE, *_lines(OWN[kind]), ""]))
    return "\n".join(parts)


def _lines(rows: Iterable[Row]) -> list[str]:
    return [f"| `{row.pattern}` | {row.status} | {_note(row)} |" for row in rows]


def _note(row: Row) -> str:
    accepted = " and ".join(f"`{_json(value)}`" for value in row.accepts)
    return "; ".join(filter(None, [row.note, accepted and f"{accepted} is accepted"]))


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
