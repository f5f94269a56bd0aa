"""instructor: each of its modes for an OpenAI server, whole and partial."""

from typing import Any, Literal

import instructor
from common import ADAPTER, BASE_URL, CITIES, KEY, QUESTION, SECOND, UNKNOWN_MODEL, WRONG_KEY, report
from instructor.core import InstructorRetryException
from openai import OpenAI
from pydantic import BaseModel, ConfigDict


class Place(BaseModel):
    """A place."""

    model_config = ConfigDict(extra="forbid")
    city: Literal["Rome", "Oslo", "Paris"]


def client(mode: Any = instructor.Mode.JSON_SCHEMA, key: str = KEY) -> Any:
    return instructor.from_openai(OpenAI(base_url=BASE_URL, api_key=key, max_retries=0), mode=mode)


def failure(key: str = KEY, model: str = ADAPTER) -> str:
    """Return the class of the error that instructor's own one wraps."""
    try:
        ask(QUESTION, key=key, model=model)
    except InstructorRetryException as error:
        return type(error.__cause__).__name__
    return "none"


def ask(*messages: str, mode: Any = instructor.Mode.JSON_SCHEMA, key: str = KEY, model: str = ADAPTER) -> Any:
    roles = ("user", "assistant") * 2
    turns = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=False)]
    made = client(mode, key).chat.completions.create(
        model=model, messages=turns, response_model=Place, max_retries=1, temperature=0
    )
    return made.model_dump()


report(
    structured=ask(QUESTION),
    tools=ask(QUESTION, mode=instructor.Mode.TOOLS),
    strict_tools=ask(QUESTION, mode=instructor.Mode.TOOLS_STRICT),
    streamed=[
        each.city
        for each in client(instructor.Mode.TOOLS).chat.completions.create_partial(
            model=ADAPTER, messages=[{"role": "user", "content": QUESTION}], response_model=Place
        )
    ][-1],
    second_turn=ask(QUESTION, '{"city": "Paris"}', SECOND)["city"] in CITIES,
    wrong_key=failure(key=WRONG_KEY),
    unknown_model=failure(model=UNKNOWN_MODEL),
)
