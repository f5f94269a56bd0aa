"""The exception that rejects an adapter; its text is written for the person who uploaded the adapter."""

CONFIG_FILE = "adapter_config.json"
TENSOR_FILE = "adapter_model.safetensors"

_SHOWN = 160


class AdapterRejected(ValueError):
    """The adapter cannot be served.

    Attributes:
        message: one sentence: what is wrong, where, and what to do about it.
        param: the part at fault, e.g. "adapter_config.json: r" or "adapter_model.safetensors: <tensor>".
    """

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def in_config(field: str, message: str) -> AdapterRejected:
    """Return an error that names a field of adapter_config.json."""
    return AdapterRejected(message, f"{CONFIG_FILE}: {clipped(field)}")


def in_tensor(name: str, message: str) -> AdapterRejected:
    """Return an error that names a tensor of adapter_model.safetensors."""
    return AdapterRejected(message, f"{TENSOR_FILE}: {clipped(name)}")


def clipped(text: str) -> str:
    """Return `text` made safe for a message: printable, one line, and of bounded length."""
    if len(text) > _SHOWN:
        text = text[:_SHOWN] + "…"
    return text if text.isprintable() else ascii(text)[1:-1]


def quoted(value: object) -> str:
    """Return a value from the upload in the form that a message may show."""
    if isinstance(value, str):
        return f'"{clipped(value)}"'
    return clipped(repr(value))
