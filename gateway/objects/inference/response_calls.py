"""The calls of tools in a response's output."""

from collections.abc import Iterator

from loragate.gateway.objects.inference.response_item import GrowingItem, ResponseEvent
from loragate.gateway.objects.inference.responses import CustomCallItem, FunctionCallItem, ItemStatus


class CallItem(GrowingItem):
    """A call of a function."""

    def __init__(
        self, index: int, call_id: str, name: str, numbers: Iterator[int], namespace: str | None = None
    ) -> None:
        super().__init__("fc", index, numbers)
        self._call_id = call_id
        self._name = name
        self._namespace = namespace
        self._arguments = ""

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the event that names the function, without its arguments."""
        yield self.added(self.document("in_progress"))

    def more(self, text: str) -> Iterator[ResponseEvent]:
        """Append to the arguments; yield the event."""
        self._arguments += text
        yield self.event("response.function_call_arguments.delta", delta=text)

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the whole arguments and the call."""
        yield self.event("response.function_call_arguments.done", arguments=self._arguments)
        yield self.done(self.document(status))

    def document(self, status: ItemStatus) -> FunctionCallItem:
        """Return the call as it is now."""
        item: FunctionCallItem = {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._arguments,
        }
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return item


class CustomItem(GrowingItem):
    """A call of a custom tool. Its input comes in one piece, once it is complete."""

    def __init__(
        self, index: int, call_id: str, name: str, numbers: Iterator[int], namespace: str | None = None
    ) -> None:
        super().__init__("ctc", index, numbers)
        self._call_id = call_id
        self._name = name
        self._namespace = namespace
        self._input = ""

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the event that names the tool, without its input."""
        item: CustomCallItem = {**self.document("in_progress"), "input": ""}
        yield self.added(item)

    def more(self, text: str) -> Iterator[ResponseEvent]:
        """Append to the input; yield nothing."""
        self._input += text
        yield from ()

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the input and the call."""
        yield self.event("response.custom_tool_call_input.delta", delta=self._input)
        yield self.event("response.custom_tool_call_input.done", input=self._input)
        yield self.done(self.document(status))

    def document(self, status: ItemStatus) -> CustomCallItem:
        """Return the call as it is now."""
        item: CustomCallItem = {
            "id": self.id,
            "type": "custom_tool_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "input": self._input,
        }
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return item
