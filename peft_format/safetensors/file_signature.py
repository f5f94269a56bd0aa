"""Recognition of files that are no safetensors files by their first bytes, with advice for the owner."""

_RESAVE = "save it again with save_pretrained(…, safe_serialization=True)"
_KNOWN = (
    (b"PK\x03\x04", f"is a zip archive, as torch.save and archivers write it; {_RESAVE}, and send that file as it is"),
    (b"\x80", f"is a pickle, and pickles are never read; {_RESAVE}"),
    (b"\x1f\x8b", "is compressed with gzip; send it uncompressed"),
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself; run git lfs pull"),
    (b"<", "is a web page, so the download has failed"),
    (b"GGUF", "is a GGUF file; send the adapter that PEFT saved"),
    (b"{", "is JSON; the two files may have been mixed up"),
)
SIGNATURE_BYTES = 32


def identify_file(start: bytes) -> str | None:
    """Return the end of a sentence about a file that starts with these bytes, or None. A valid file can match too."""
    return next((words for magic, words in _KNOWN if start.startswith(magic)), None)
