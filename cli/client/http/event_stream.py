"""Server-sent events of a streamed completion."""

import json
from collections.abc import Iterable, Iterator

from loragate.cli.refusal import Refusal


def chat_text(lines: Iterable[str]) -> Iterator[str]:
    """The text of a streamed chat answer, piece by piece.

    Raises Refusal for an error event, and when the stream ends without `[DONE]`.
    """
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise Refusal(str(event["error"].get("message", "the server ended the answer with an error")))
        for choice in event.get("choices", ()):
            if text := choice.get("delta", {}).get("content"):
                yield text
    raise Refusal("the answer broke off before its end")
