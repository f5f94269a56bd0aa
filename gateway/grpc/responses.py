"""Conversion of the REST API's response objects to messages, whose fields have the same names."""

from collections.abc import Mapping
from typing import Any

from loragate.v1 import adapters_pb2
from loragate.v1 import inference_pb2 as pb


def generate_response(document: Mapping[str, Any]) -> pb.GenerateResponse:
    """Convert a text completion, or a chunk of one."""
    choices = [_with_prompt(_with_alternatives(choice)) for choice in document["choices"]]
    text = "".join(choice["text"] for choice in choices if choice["index"] == 0)
    return pb.GenerateResponse(**{**document, "choices": choices}, text=text)


def chat_response(document: Mapping[str, Any]) -> pb.ChatResponse:
    """Convert a chat completion."""
    return pb.ChatResponse(**_with_prompt(document), text=document["choices"][0]["message"]["content"])


def chat_chunk(document: Mapping[str, Any]) -> pb.ChatChunk:
    """Convert a chunk of a chat completion."""
    first = (choice["delta"].get("content") for choice in document["choices"] if choice["index"] == 0)
    return pb.ChatChunk(**document, text=next(first, None))


def adapter_response(document: Mapping[str, Any]) -> adapters_pb2.Adapter:
    """Convert an adapter with its aliases."""
    return adapters_pb2.Adapter(**_with_targets(document))


def adapters_response(document: Mapping[str, Any]) -> adapters_pb2.ListAdaptersResponse:
    """Convert a page of adapters."""
    return adapters_pb2.ListAdaptersResponse(**{**document, "data": [_with_targets(each) for each in document["data"]]})


def _with_targets(adapter: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a map of lists to a map of messages, each of which contains a list."""
    return {**adapter, "aliases": {name: {"targets": targets} for name, targets in adapter["aliases"].items()}}


def _with_alternatives(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a list of maps to a list of messages, each of which contains a map. Messages have no null: the first
    token of an echoed prompt has a logprob of 0, and no alternatives."""
    logprobs = choice["logprobs"]
    if logprobs is None:
        return choice
    top = [{"logprobs": alternatives or {}} for alternatives in logprobs["top_logprobs"]]
    own = [logprob or 0.0 for logprob in logprobs["token_logprobs"]]
    return {**choice, "logprobs": {**logprobs, "token_logprobs": own, "top_logprobs": top}}


def _with_prompt(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the logprobs of a prompt's tokens to messages, whose keys are numbers."""
    if "prompt_logprobs" not in document:
        return document
    tokens = [
        {"logprobs": {int(token_id): entry for token_id, entry in (token or {}).items()}}
        for token in document["prompt_logprobs"]
    ]
    return {**document, "prompt_logprobs": tokens}
