"""An adapter's two files, and functions that tamper with them."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Header = dict[str, Any]


@dataclass(frozen=True)
class Files:
    """adapter_config.json and adapter_model.safetensors."""

    config: bytes
    tensors: bytes

    @property
    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.config)
        return fields

    @property
    def header(self) -> Header:
        header: Header = json.loads(self.tensors[8 : self.start])
        return header

    @property
    def start(self) -> int:
        """Return the offset of the first byte after the header."""
        return 8 + int(struct.unpack("<Q", self.tensors[:8])[0])

    @property
    def body(self) -> bytes:
        return self.tensors[self.start :]


Change = Callable[[Files], Files]


def packed(header: Header | bytes, body: bytes) -> bytes:
    """Return a safetensors file; the header may be any bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def fields(**changes: Any) -> Change:
    """Replace or add fields of the config."""
    return lambda files: replace(files, config=json.dumps(files.fields | changes).encode())


def without(*names: str) -> Change:
    """Remove fields of the config."""
    return lambda files: replace(
        files, config=json.dumps({k: v for k, v in files.fields.items() if k not in names}).encode()
    )


def config_text(change: Callable[[bytes], bytes]) -> Change:
    """Change the config as bytes."""
    return lambda files: replace(files, config=change(files.config))


def more_config(text: str) -> Change:
    """Put raw members before the config's own."""
    return config_text(lambda raw: b"{" + text.encode("utf-8", "surrogatepass") + b", " + raw.lstrip()[1:])


def tensor_file(change: Callable[[bytes], bytes]) -> Change:
    """Change the tensors' file as bytes."""
    return lambda files: replace(files, tensors=change(files.tensors))


def header(change: Callable[[Header], Header | bytes]) -> Change:
    """Change the header, and keep the bytes of tensors."""
    return lambda files: replace(files, tensors=packed(change(files.header), files.body))


def header_text(change: Callable[[bytes], bytes]) -> Change:
    """Change the header as bytes."""
    return lambda files: replace(files, tensors=packed(change(files.tensors[8 : files.start]), files.body))


def entry(end: str, **changes: Any) -> Change:
    """Replace members of the header's first entry whose name ends like this, or remove them with None."""

    def change(header: Header) -> Header:
        name = named(header, end)
        merged = {**header[name], **changes}
        return {**header, name: {key: value for key, value in merged.items() if value is not None}}

    return _over_header(change)


def renamed(end: str, new: Callable[[str], str]) -> Change:
    """Rename the first tensor whose name ends like this."""

    def change(header: Header) -> Header:
        name = named(header, end)
        return {(new(key) if key == name else key): value for key, value in header.items()}

    return _over_header(change)


def removed(end: str) -> Change:
    """Remove all tensors whose names end like this, with their bytes."""
    return tensors(lambda name, raw, entry: None if name.endswith(end) else (raw, entry))


def reshaped(end: str, shape: list[int]) -> Change:
    """Give the first tensor whose name ends like this another shape, filled with zeros."""
    done = []

    def change(name: str, raw: bytes, entry: Header) -> tuple[bytes, Header]:
        if not name.endswith(end) or done:
            return raw, entry
        done.append(name)
        count = 1
        for size in shape:
            count *= size
        return bytes(4 * count), {**entry, "shape": shape}

    def fresh(files: Files) -> Files:
        done.clear()
        return tensors(change)(files)

    return fresh


def added(name: str, shape: list[int]) -> Change:
    """Add a tensor of zeros in float32."""

    def change(files: Files) -> Files:
        count = 1
        for size in shape:
            count *= size
        entry = {"dtype": "F32", "shape": shape, "data_offsets": [len(files.body), len(files.body) + 4 * count]}
        return replace(files, tensors=packed({**files.header, name: entry}, files.body + bytes(4 * count)))

    return change


def poked(end: str, bits: int, *, at: int = 0) -> Change:
    """Set value number `at` of the first tensor with this name suffix to the given bits, in the tensor's dtype."""

    def change(files: Files) -> Files:
        entry = files.header[named(files.header, end)]
        width = {"F32": 4, "F16": 2, "BF16": 2}[entry["dtype"]]
        begin, stop = entry["data_offsets"]
        place = files.start + (begin + at * width if at >= 0 else stop + at * width)
        raw = bytearray(files.tensors)
        raw[place : place + width] = bits.to_bytes(width, "little")
        return replace(files, tensors=bytes(raw))

    return change


def both(*changes: Change) -> Change:
    """Apply one after the other."""

    def change(files: Files) -> Files:
        for each in changes:
            files = each(files)
        return files

    return change


def tensors(change: Callable[[str, bytes, Header], tuple[bytes, Header] | None]) -> Change:
    """Change or drop each tensor's bytes and header entry, and write the file again."""

    def apply(files: Files) -> Files:
        header, body = {}, b""
        for name, entry in files.header.items():
            if name == "__metadata__":
                header[name] = entry
                continue
            begin, end = entry["data_offsets"]
            kept = change(name, files.body[begin:end], entry)
            if kept is not None:
                raw, new = kept
                header[name] = {**new, "data_offsets": [len(body), len(body) + len(raw)]}
                body += raw
        return replace(files, tensors=packed(header, body))

    return apply


def named(header: Header, end: str) -> str:
    """Return the first tensor whose name ends like this."""
    return next(name for name in header if name.endswith(end))


def _over_header(change: Callable[[Header], Header]) -> Change:
    return lambda files: replace(files, tensors=packed(change(files.header), files.body))
