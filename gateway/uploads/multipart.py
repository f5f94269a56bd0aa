"""A multipart form with a file, filled by the multipart parser."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart.multipart import parse_options_header

from loragate.gateway.errors import InvalidRequest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


@dataclass(frozen=True)
class FormShape:
    """The parts of a form: the maximum bytes of each text field and each small file, and the file that is spooled."""

    fields: Mapping[str, int]
    spooled: str
    small_files: Mapping[str, int] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.small_files, self.spooled)


class Form:
    """Identifies a field by its name, a file by its file name or else its field's name.

    `unspooled` holds what arrived of the spooled file since it was last emptied; `filename` is the client's name for
    that file.
    """

    def __init__(self, shape: FormShape) -> None:
        self.shape = shape
        self.complete = False
        self.seen: set[str] = set()
        self.unspooled = bytearray()
        self.filename = ""
        self._limits = {**shape.fields, **shape.small_files}
        self._small = {name: bytearray() for name in self._limits}
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition = b""
        self._part = ""

    def content(self, file: str) -> bytes:
        """Return the content of a small file."""
        return bytes(self._small[file])

    def require(self, *parts: str) -> None:
        """Raise InvalidRequest if a part is missing."""
        for part in parts:
            if part not in self.seen:
                kind = "file" if part in self.shape.files else "field"
                code = "missing_file" if part in self.shape.files else "invalid_value"
                raise InvalidRequest(f"Invalid '{part}': this {kind} is required.", param=part, code=code)

    def text(self, field: str) -> str | None:
        """Return a field's value; None if it was not sent."""
        if field not in self.seen:
            return None
        try:
            return self._small[field].decode()
        except UnicodeDecodeError:
            raise _invalid(field, "it is not UTF-8") from None

    def add(self, part: str, data: bytes) -> None:
        """Add a complete field, or more of a file, for an upload that is not a multipart form."""
        if part in self.shape.fields and part in self.seen:
            raise _invalid(part, "it was sent twice")
        self.seen.add(part)
        self._grow(part, data)

    def callbacks(self) -> "MultipartCallbacks":
        """Return the callbacks for the parser."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._add_header_name,
            "on_header_value": self._add_header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._identify,
            "on_part_data": self._add_data,
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
        self._part = next((name for name in (file, field) if name in self.shape.files), field)
        if self._part not in (*self._limits, self.shape.spooled) or (file and self._part in self.shape.fields):
            raise self._unexpected(field)
        if self._part in self.seen:
            raise _invalid(self._part, "it was sent twice")
        self.seen.add(self._part)
        if self._part == self.shape.spooled:
            self.filename = file

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._grow(self._part, data[start:end])

    def _grow(self, part: str, data: bytes) -> None:
        if part == self.shape.spooled:
            self.unspooled += data
            return
        self._small[part] += data
        if len(self._small[part]) > self._limits[part]:
            raise _invalid(part, f"it is larger than {self._limits[part]} bytes")

    def _unexpected(self, field: str) -> InvalidRequest:
        files, fields = (", ".join(f"'{name}'" for name in names) for names in (self.shape.files, self.shape.fields))
        expected = f"{files}{' and the fields ' + fields if fields else ''}"
        return InvalidRequest(
            f"The form has an unexpected part. It takes exactly {expected}.",
            param=field[:100] or None,
            code="unexpected_part",
        )

    def _end(self) -> None:
        self.complete = True


def _invalid(param: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{param}': {reason}.", param=param, code="invalid_value")
