"""Each field of the types of OpenAI's and Anthropic's clients has a row in fields.toml, and each row a field.

FIELDS_PAGE=1 pytest tests/clients/test_fields.py   # also write the rows to the documentation
"""

import os
from pathlib import Path

import pytest
from pydantic import BaseModel

from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.completions import CompletionRequest
from loragate.gateway.schemas.inference.conversations import ConversationCreate
from loragate.gateway.schemas.inference.embeddings import EmbeddingRequest
from loragate.gateway.schemas.inference.messages import MessageRequest, MessageTokensRequest
from loragate.gateway.schemas.inference.responses import ResponseRequest
from loragate.gateway.schemas.resources.batches import BatchCreate
from tests.clients.field_page import page_of
from tests.clients.field_rows import FIELDS, OWN, ROWS, rows_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "fields.md"


@pytest.mark.parametrize("kind", FIELDS)
def test_each_field_has_one_row(kind: str) -> None:
    around = {field.path.rpartition(".")[0] for field in FIELDS[kind]}
    fields = [field for field in FIELDS[kind] if not (field.is_form and field.path in around)]
    rows = {field.path: [row.pattern for row in rows_of(kind, field.path)] for field in fields}
    assert not {path: found for path, found in rows.items() if len(found) != 1}


def test_each_row_has_a_field() -> None:
    found = {id(row) for kind, fields in FIELDS.items() for field in fields for row in rows_of(kind, field.path)}
    assert not [f"{kind}: {row.pattern}" for kind, rows in ROWS.items() for row in rows if id(row) not in found]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("chat", ChatRequest),
        ("completions", CompletionRequest),
        ("embeddings", EmbeddingRequest),
        ("responses", ResponseRequest),
        ("messages", MessageRequest),
        ("count_tokens", MessageTokensRequest),
        ("batches", BatchCreate),
        ("conversations", ConversationCreate),
    ],
)
def test_each_further_field_of_ours_has_a_row(kind: str, body: type[BaseModel]) -> None:
    known = {field.path for each in (kind, f"beta_{kind}") for field in FIELDS.get(each, ())}
    known |= {field.path for field in FIELDS["beta_messages"]} if kind == "count_tokens" else set()
    assert body.model_json_schema()["properties"].keys() - known == {row.pattern for row in OWN.get(kind, ())}
    assert not [row.pattern for row in OWN.get(kind, ()) if row.send is None]


def test_the_page_is_up_to_date() -> None:
    if os.environ.get("FIELDS_PAGE"):
        PAGE.write_text(page_of())
    assert PAGE.read_text() == page_of(), "write it again, with FIELDS_PAGE=1"
