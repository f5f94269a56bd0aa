"""The files of the blob store as such, by their names below its root: for backups, and for the journal's place."""

from typing import Any, BinaryIO

from loragate.adapter_store.blobs.filesystem import Objects


class RawFiles:
    """All methods block and raise OSError only: run them in threads."""

    def __init__(self, objects: Objects, root: str) -> None:
        self.objects = objects
        self.root = root

    def name_of(self, path: str) -> str:
        return path.removeprefix(f"{self.root}/")

    def size(self, name: str) -> int:
        """Return the file's size. Raises FileNotFoundError."""
        return self.objects.size(f"{self.root}/{name}")

    def exists(self, name: str) -> bool:
        return self.objects.exists(f"{self.root}/{name}")

    def open(self, name: str) -> Any:
        """Open a file; it has only `read(size)` and `close()`."""
        return self.objects.open(f"{self.root}/{name}")

    def write(self, name: str, content: BinaryIO) -> None:
        """Write a file durably, in place of one that may be there."""
        tenant, folder = name.partition("/")[0], name.rpartition("/")[0]
        self.objects.write(f"{self.root}/{name}", content, f"{self.root}/{tenant}/tmp")  # noqa: S108 (below the root)
        self.objects.settle(f"{self.root}/{folder}", f"{self.root}/{tenant}", self.root)
