"""The parts of an adapter upload's form, as the multipart parser finds them."""

from typing import TYPE_CHECKING

from python_multipart.multipart import parse_options_header

from loragate.adapter_store.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.gateway.http.errors import InvalidRequest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_FIELDS = {"name": 1024, "alias": 1024, "tags": 16 << 10, "description": 16 << 10}  # the most bytes of each
_FILES = (CONFIG_FILE, TENSORS_FILE)
_MAX_CONFIG_BYTES = 1 << 20


class UploadForm:
    """Takes each part by what it is: a field by its name, a file by its file name or else its field's name.

    `tensors` holds what came of the safetensors file since somebody last emptied it.
    """

    def __init__(self) -> None:
        self.complete = False
        self.seen: set[str] = set()
        self.config = bytearray()
        self.tensors = bytearray()
        self._fields: dict[str, bytearray] = {field: bytearray() for field in _FIELDS}
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition = b""
        self._part = ""

    def text(self, field: str) -> str | None:
        """A field's value; None if it was not sent."""
        if field not in self.seen:
            return None
        try:
            return self._fields[field].decode()
        except UnicodeDecodeError:
            raise _refused(field, "it is not UTF-8") from None

    def add(self, part: str, data: bytes) -> None:
        """A field, whole, or more of a file, for an upload that is no multipart form."""
        if part in _FIELDS and part in self.seen:
            raise _refused(part, "it was sent twice")
        self.seen.add(part)
        self._grow(part, data)

    def callbacks(self) -> "MultipartCallbacks":
        """What the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._add_header_name,
            "on_header_value": self._add_header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._identify,
            "on_part_data": self._take,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._disposition, self._part = b"", ""

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if bytes(self._header_name).lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name, self._header_value = bytearray(), bytearray()

    def _identify(self) -> None:
        _, options = parse_options_header(self._disposition)
        field = options.get(b"name", b"").decode(errors="replace")
        file = options.get(b"filename", b"").decode(errors="replace").replace("\\", "/").rpartition("/")[2]
        self._part = next((name for name in (file, field) if name in _FILES), field)
        if self._part not in (*_FIELDS, *_FILES) or (file and self._part in _FIELDS):
            wanted = f"'{CONFIG_FILE}', '{TENSORS_FILE}', and the fields " + ", ".join(
                f"'{field}'" for field in _FIELDS
            )
            raise InvalidRequest(
                f"The form has a part that does not belong there. It takes exactly {wanted}.",
                param=field[:100] or None,
                code="unexpected_part",
            )
        if self._part in self.seen:
            raise _refused(self._part, "it was sent twice")
        self.seen.add(self._part)

    def _take(self, data: bytes, start: int, end: int) -> None:
        self._grow(self._part, data[start:end])

    def _grow(self, part: str, data: bytes) -> None:
        if part == TENSORS_FILE:
            self.tensors += data
            return
        small, limit = (self.config, _MAX_CONFIG_BYTES) if part == CONFIG_FILE else (self._fields[part], _FIELDS[part])
        small += data
        if len(small) > limit:
            raise _refused(part, f"it is larger than {limit} bytes")

    def _end(self) -> None:
        self.complete = True


def _refused(param: str, words: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{param}': {words}.", param=param, code="invalid_value")
