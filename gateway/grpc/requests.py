"""Conversion of request messages to the REST API's bodies, so that the same schemas validate both."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pydantic_core
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.classification import ClassifyRequest
from loragate.gateway.schemas.inference.completions import CompletionRequest
from loragate.gateway.schemas.validation import validated
from loragate.v1 import inference_pb2 as pb

B = TypeVar("B", bound=BaseModel)
M = TypeVar("M", bound=Message)

# In REST these are JSON objects. Text keeps the order of a schema's properties, which the model's output follows.
_JSON_FIELDS = frozenset({"loragate.v1.FunctionDefinition.parameters", "loragate.v1.JsonSchemaFormat.schema"})
_MAX_MESSAGES = 4096  # in one field; an empty message has two bytes, but is much larger as an object
_PROMPTS = ("prompt", "prompts", "prompt_token_ids")
_INPUTS = ("input", "inputs", "input_token_ids")


def parse_message(kind: type[M], raw: bytes) -> M:
    """Parse a message. Raise InvalidRequest for invalid bytes."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        message = f"The message is not a valid {kind.DESCRIPTOR.full_name}."
        raise InvalidRequest(message, code="invalid_message") from None


def chat_request(raw: bytes, *, stream: bool = False) -> ChatRequest:
    """Parse and validate a ChatRequest message. Raise InvalidRequest."""
    document = body_from(parse_message(pb.ChatRequest, raw)) | {"stream": stream}
    choice = document.get("tool_choice")
    if choice is not None and choice.keys() <= {"type"}:
        document["tool_choice"] = choice.get("type", "")
    return validated(ChatRequest, document)


def completion_request(raw: bytes, *, stream: bool = False) -> CompletionRequest:
    """Parse and validate a GenerateRequest message. Raise InvalidRequest."""
    document = body_from(parse_message(pb.GenerateRequest, raw)) | {"stream": stream}
    return validated(CompletionRequest, _with_one_of(_PROMPTS, document))


def classify_request(raw: bytes) -> ClassifyRequest:
    """Parse and validate a ClassifyRequest message. Raise InvalidRequest."""
    return validated(ClassifyRequest, _with_one_of(_INPUTS, body_from(parse_message(pb.ClassifyRequest, raw))))


def message_body(kind: type[Message], body: type[B]) -> Callable[[bytes], B]:
    """Return a function that parses and validates a message whose fields are those of the body. It raises
    InvalidRequest."""
    return lambda raw: validated(body, body_from(parse_message(kind, raw)))


def _with_one_of(fields: Sequence[str], document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with one of several fields under the name of the first. Raise InvalidRequest for more."""
    param = fields[0]
    given = [document.pop(field) for field in fields if field in document]
    if len(given) > 1:
        message = f"Invalid '{param}': give one of {', '.join(fields[:-1])} and {fields[-1]}."
        raise InvalidRequest(message, param=param, code="invalid_value")
    for value in given:
        by_ids = isinstance(value, list) and isinstance(value[0], dict)
        document[param] = [ids.get("ids", []) for ids in value] if by_ids else value
    return document


def body_from(message: Message, path: str = "") -> dict[str, Any]:
    """Return the message as the equivalent JSON body, without absent fields. Raise InvalidRequest."""
    return {field.name: _value(field, value, path + field.name) for field, value in message.ListFields()}


def _value(field: FieldDescriptor, value: Any, path: str) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {str(key): item for key, item in value.items()}
    if field.is_repeated:
        if field.message_type is not None and len(value) > _MAX_MESSAGES:
            message = f"Invalid '{path}': there must not be more than {_MAX_MESSAGES}."
            raise InvalidRequest(message, param=path, code="invalid_value")
        return [_item(field, item, f"{path}.{position}") for position, item in enumerate(value)]
    return _item(field, value, path)


def _item(field: FieldDescriptor, item: Any, path: str) -> Any:
    if isinstance(item, Message):
        return body_from(item, f"{path}.")
    return _json(item, path) if field.full_name in _JSON_FIELDS else item


def _json(text: str, path: str) -> Mapping[str, Any]:
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        message = f"Invalid '{path}': it must be a JSON object, as text."
        raise InvalidRequest(message, param=path, code="invalid_value")
    return value
