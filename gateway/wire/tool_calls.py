"""Tool calls, whole and in deltas."""

from collections.abc import Iterable
from typing import Any

from loragate.gateway.tools.message import MoreArguments, Piece, ToolCall


def call_delta(piece: ToolCall | MoreArguments) -> dict[str, Any]:
    """The first delta of a call has its id and name, the others more of its arguments."""
    if isinstance(piece, MoreArguments):
        return {"index": piece.index, "function": {"arguments": piece.text}}
    return {"index": piece.index, **_call(piece)}


def whole_calls(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    """The message's calls in their order."""
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, ToolCall):
            calls.append(_call(piece))
        elif isinstance(piece, MoreArguments):
            calls[piece.index]["function"]["arguments"] += piece.text
    return calls


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
