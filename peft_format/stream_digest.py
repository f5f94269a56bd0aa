"""An adapter's digest, found while its file passes by."""

import hashlib
from io import BytesIO

from loragate.peft_format.config.lora_config import parse_config
from loragate.peft_format.digest import digest_of_hashes
from loragate.peft_format.errors import TENSOR_FILE, AdapterRefused
from loragate.peft_format.safetensors.header import Header, TensorSpec, header_bytes, read_header


class StreamDigest:
    """`feed` takes the tensors' file in order; `value` is what `adapter_digest` says of the whole.

    All raise AdapterRefused for what can be no adapter, or one of another size.
    """

    def __init__(self, config_json: bytes, size: int) -> None:
        self._config = parse_config(config_json)
        self._size = size
        self._head = bytearray()
        self._header: Header | None = None
        self._left: list[TensorSpec] = []  # to come, the next one last
        self._at = 0
        self._hash = hashlib.sha256()
        self._hashes: dict[str, str] = {}

    def feed(self, chunk: bytes) -> None:
        if self._header is not None:
            self._take(memoryview(chunk))
            return
        self._head += chunk
        length = header_bytes(self._head, self._size)
        if length is not None and len(self._head) >= length:
            self._header = read_header(BytesIO(self._head), self._size)
            self._left = list(self._header.tensors.values())[::-1]
            self._at = length
            rest, self._head = bytes(self._head[length:]), bytearray()
            self._take(memoryview(rest))

    def value(self) -> str:
        """Once all has been fed."""
        self._end_tensors()
        if self._header is None or self._left or self._at != self._size:
            raise AdapterRefused(f"{TENSOR_FILE} is cut short.", TENSOR_FILE)
        return digest_of_hashes(self._config, self._header, self._hashes)

    def _take(self, data: memoryview) -> None:
        while data:
            self._end_tensors()
            if not self._left:
                raise AdapterRefused(f"{TENSOR_FILE} goes on after its end.", TENSOR_FILE)
            part = data[: self._left[-1].end - self._at]
            self._hash.update(part)
            self._at += len(part)
            data = data[len(part) :]

    def _end_tensors(self) -> None:
        """Those that are complete, empty ones included."""
        while self._left and self._at == self._left[-1].end:
            self._hashes[self._left.pop().name] = self._hash.hexdigest()
            self._hash = hashlib.sha256()
