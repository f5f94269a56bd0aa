"""What a file is that is no safetensors file, told by how it begins, and what its owner should do."""

_RESAVE = "save it again with save_pretrained(…, safe_serialization=True)"
_KNOWN = (
    (b"PK\x03\x04", f"is a zip archive, as torch.save and archivers write them; {_RESAVE}, and send it as it is"),
    (b"\x80", f"is a pickle, which is never read; {_RESAVE}"),
    (b"\x1f\x8b", "is compressed with gzip; send it uncompressed"),
    (b"version https://git-lfs", "is a pointer of Git LFS, not the file that it stands for; run git lfs pull"),
    (b"<", "is a web page, so its download has failed"),
    (b"GGUF", "is a GGUF file; send the adapter that PEFT saved"),
    (b"{", "is JSON; the two files may have been mixed up"),
)
SIGNATURE_BYTES = 32


def identify_file(start: bytes) -> str | None:
    """The end of a sentence about a file that begins like this, or None. A right file can begin so too."""
    return next((words for magic, words in _KNOWN if start.startswith(magic)), None)
