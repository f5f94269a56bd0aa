"""An adapter's two files, to be tampered with."""

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
        """The first byte after the header."""
        return 8 + int(struct.unpack("<Q", self.tensors[:8])[0])

    @property
    def body(self) -> bytes:
        return self.tensors[self.start :]


Change = Callable[[Files], Files]


def packed(header: Header | bytes, body: bytes) -> bytes:
    """A safetensors file; the header may be any bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def fields(**changes: Any) -> Change:
    """Some fields of the config replaced or added."""
    return lambda files: replace(files, config=json.dumps(files.fields | changes).encode())


def without(*names: str) -> Change:
    """Some fields of the config left out."""
    return lambda files: replace(
        files, config=json.dumps({k: v for k, v in files.fields.items() if k not in names}).encode()
    )


def config_text(change: Callable[[bytes], bytes]) -> Change:
    """The config as bytes, changed."""
    return lambda files: replace(files, config=change(files.config))


def more_config(text: str) -> Change:
    """Raw members put in front of the config's own."""
    return config_text(lambda raw: b"{" + text.encode("utf-8", "surrogatepass") + b", " + raw.lstrip()[1:])


def tensor_file(change: Callable[[bytes], bytes]) -> Change:
    """The tensors' file as bytes, changed."""
    return lambda files: replace(files, tensors=change(files.tensors))


def header(change: Callable[[Header], Header | bytes]) -> Change:
    """The header changed, over the same bytes of tensors."""
    return lambda files: replace(files, tensors=packed(change(files.header), files.body))


def header_text(change: Callable[[bytes], bytes]) -> Change:
    """The header as bytes, changed."""
    return lambda files: replace(files, tensors=packed(change(files.tensors[8 : files.start]), files.body))


def entry(end: str, **changes: Any) -> Change:
    """Members of the header's first entry whose name ends like this replaced, or with None left out."""

    def change(header: Header) -> Header:
        name = named(header, end)
        merged = {**header[name], **changes}
        return {**header, name: {key: value for key, value in merged.items() if value is not None}}

    return _over_header(change)


def renamed(end: str, new: Callable[[str], str]) -> Change:
    """The first tensor whose name ends like this under another name."""

    def change(header: Header) -> Header:
        name = named(header, end)
        return {(new(key) if key == name else key): value for key, value in header.items()}

    return _over_header(change)


def removed(end: str) -> Change:
    """Without any tensor whose name ends like this, bytes and all."""
    return tensors(lambda name, raw, entry: None if name.endswith(end) else (raw, entry))


def reshaped(end: str, shape: list[int]) -> Change:
    """The first tensor whose name ends like this with another shape, and zeros for as many values."""
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
    """One tensor more, of zeros in float32."""

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
    """One after the other."""

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
    """The first tensor whose name ends like this."""
    return next(name for name in header if name.endswith(end))


def _over_header(change: Callable[[Header], Header]) -> Change:
    return lambda files: replace(files, tensors=packed(change(files.header), files.body))
