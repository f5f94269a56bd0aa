"""The format of GPT-OSS: a message to a function in the channel `commentary`.

`<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>`. Source: OpenAI, "OpenAI Harmony
Response Format", 2025.
"""

import re
from contextlib import suppress

from loragate.gateway.tools.json_call import call_with_arguments
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream, content_until, skip, space, text_until
from loragate.gateway.tools.types import Malformed, Steps, Tools

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
MARKS = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)

RECIPIENT = re.compile(r"\bto=functions\.([A-Za-z0-9_.-]+)")


class HarmonyCalls:
    """Each call is a message of its own, and ends the completion."""

    markers = (START, CHANNEL, MESSAGE, CONSTRAIN, CALL)

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Also read a call whose last token ended the completion."""
        while (yield from content_until(stream, START, CHANNEL)) is not None:
            with suppress(Malformed):
                header = yield from text_until(stream, MESSAGE)
                named = RECIPIENT.search(header or "")
                if named is None or named[1] not in tools:
                    raise Malformed
                yield from space(stream)
                yield from call_with_arguments(stream, named[1])
                yield from space(stream)
                if (yield from skip(stream, CALL)):
                    stream.commit()

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Write one call, because the model waits for its result."""
        calls = [
            lark.sequence(
                lark.text(f"{CHANNEL}commentary to=functions.{name} {CONSTRAIN}json{MESSAGE}"),
                lark.json(schema),
                lark.text(CALL),
            )
            for name, schema in tools.items()
        ]
        return lark.sequence(f"({lark.text(f'{START}assistant')})?", lark.either(calls))
