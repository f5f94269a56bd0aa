"""The calls of tools in a response's output."""

from collections.abc import Iterator
from typing import ClassVar

from loragate.gateway.objects.inference.response_item import GrowingItem, ResponseEvent
from loragate.gateway.objects.inference.responses import CustomCallItem, FunctionCallItem, ItemStatus


class _Call(GrowingItem):
    """What calls of functions and of custom tools have in common. `_text` is the arguments, or the input."""

    _prefix: ClassVar[str]  # of its id

    def __init__(
        self,
        response_id: str,
        index: int,
        call_id: str,
        name: str,
        numbers: Iterator[int],
        namespace: str | None = None,
    ) -> None:
        super().__init__(response_id, self._prefix, index, numbers)
        self._call_id = call_id
        self._name = name
        self._namespace = namespace
        self._text = ""


class CallItem(_Call):
    """A call of a function."""

    _prefix = "fc"

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the event that names the function, without its arguments."""
        yield self.added(self.document("in_progress"))

    def more(self, text: str) -> Iterator[ResponseEvent]:
        """Append to the arguments; yield the event."""
        self._text += text
        yield self.event("response.function_call_arguments.delta", delta=text)

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the whole arguments and the call."""
        yield self.event("response.function_call_arguments.done", arguments=self._text)
        yield self.done(self.document(status))

    def document(self, status: ItemStatus) -> FunctionCallItem:
        """Return the call as it is now."""
        item: FunctionCallItem = {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._text,
        }
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return item


class CustomItem(_Call):
    """A call of a custom tool. Its input comes in one piece, once it is complete."""

    _prefix = "ctc"

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the event that names the tool, without its input."""
        item: CustomCallItem = {**self.document("in_progress"), "input": ""}
        yield self.added(item)

    def more(self, text: str) -> Iterator[ResponseEvent]:
        """Append to the input; yield nothing."""
        self._text += text
        yield from ()

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the input and the call."""
        yield self.event("response.custom_tool_call_input.delta", delta=self._text)
        yield self.event("response.custom_tool_call_input.done", input=self._text)
        yield self.done(self.document(status))

    def document(self, status: ItemStatus) -> CustomCallItem:
        """Return the call as it is now."""
        item: CustomCallItem = {
            "id": self.id,
            "type": "custom_tool_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "input": self._text,
        }
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return item
