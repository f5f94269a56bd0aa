"""Where the engine listens: a Unix socket that only this user can reach."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loragate.cli.refusal import Refusal

_LONGEST_PATH = 106  # sockaddr_un holds 108 bytes with the end, on some systems 104


@contextmanager
def engine_socket() -> Iterator[str]:
    """A gRPC target in a new folder of mode 0700, removed at the end. Raises Refusal for a long TMPDIR."""
    folder = Path(tempfile.mkdtemp(prefix="loragate-"))
    try:
        path = folder / "engine.sock"
        if len(str(path).encode()) > _LONGEST_PATH:
            raise Refusal(f"the temporary folder {folder.parent} is too long a path for a socket: set TMPDIR")
        yield f"unix:{path}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
