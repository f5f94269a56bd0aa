"""Schemas through the whole stack: the official client, the real engine, a random model and its adapters."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

QUESTION: Any = [{"role": "user", "content": "who is it?"}]


class Person(BaseModel):
    name: str = Field(max_length=10)
    age: int = Field(ge=0, le=150)
    mood: Literal["good", "bad"] | None


@pytest.fixture
def official(tenants):  # type: ignore[no-untyped-def]
    with openai.OpenAI(base_url=f"{tenants.server.base_url}/v1", api_key=tenants.acme_key) as client:
        yield client


def test_the_official_client_parses_into_a_model(official: openai.OpenAI) -> None:
    """The base model and adapters share a batch."""

    def parse(seed: int) -> Person:
        answer = official.chat.completions.parse(
            model=("tiny-llama", "a", "b")[seed % 3],
            messages=QUESTION,
            response_format=Person,
            seed=seed,
            temperature=1,
        )
        assert answer.choices[0].finish_reason == "stop"
        assert answer.choices[0].message.parsed is not None
        return answer.choices[0].message.parsed

    with ThreadPoolExecutor(6) as pool:
        people = list(pool.map(parse, range(12)))
    assert len({person.name for person in people}) > 6


def test_a_stream_adds_up_to_the_complete_response(official: openai.OpenAI) -> None:
    schema = Person.model_json_schema() | {"additionalProperties": False}
    wanted: Any = {
        "model": "a",
        "messages": QUESTION,
        "seed": 4,
        "temperature": 1,
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}},
    }
    whole = official.chat.completions.create(**wanted)
    text = "".join(
        choice.delta.content or ""
        for chunk in official.chat.completions.create(**wanted, stream=True)
        for choice in chunk.choices
    )
    assert text == whole.choices[0].message.content
    jsonschema.validate(json.loads(text), schema)


def test_regex_and_choice_on_both_endpoints(official: openai.OpenAI) -> None:
    pattern = "[0-9]{3}-[a-f]{2}"
    chat = official.chat.completions.create(
        model="b", messages=QUESTION, extra_body={"structured_outputs": {"regex": pattern}}, n=3, temperature=1
    )
    for choice in chat.choices:
        assert re.fullmatch(pattern, choice.message.content or "")
    plain = official.completions.create(
        model="a", prompt=["x", "y"], max_tokens=50, extra_body={"structured_outputs": {"choice": ["yes", "no"]}}
    )
    assert {choice.text for choice in plain.choices} <= {"yes", "no"}


@pytest.mark.parametrize(
    ("schema", "word"), [({"type": "array", "uniqueItems": True}, "uniqueItems"), ({"type": "thing"}, "thing")]
)
def test_an_unsupported_schema_is_rejected_by_its_keyword(
    official: openai.OpenAI, schema: dict[str, Any], word: str
) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=word) as caught:
            official.chat.completions.create(model="a", messages=QUESTION, response_format=wanted, stream=stream)
        assert caught.value.param == "response_format"
