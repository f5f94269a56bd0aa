"""Import from a bucket: reads the files with the operator's credentials, where the operator allows it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from loragate.adapter_store.blobs.blobs import TENSORS_FILE, open_objects
from loragate.adapter_store.blobs.filesystem import Objects
from loragate.adapter_store.errors import CannotOpen
from loragate.gateway.imports.source import BucketSource, ImportFailed, SourceFile

log = logging.getLogger(__name__)


async def bucket_files(
    source: BucketSource, files: Sequence[SourceFile], set_total: Callable[[int | None], None]
) -> AsyncIterator[tuple[str, bytes]]:
    """Yield pieces of the files with the file's name. Call `set_total` with the size. Raise ImportFailed."""
    try:
        objects, root = await asyncio.to_thread(open_objects, f"s3://{source.place}")
        for file in files:
            path = f"{root}/{file.name}"
            try:
                size = await asyncio.to_thread(partial(_size, objects, path, file.max_bytes))
            except FileNotFoundError:
                if file.optional:
                    continue
                raise
            if file.name == TENSORS_FILE:
                set_total(size)
            left = size
            async for piece in objects.chunks(path):
                left -= len(piece)
                if left < 0:
                    raise ImportFailed("source_changed", f"s3://{source.place} was changed while it was read.")
                yield file.name, piece
    except FileNotFoundError:
        raise ImportFailed(
            "source_not_found", f"s3://{source.place} does not contain both files that PEFT saves."
        ) from None
    except PermissionError:
        raise ImportFailed(
            "source_denied", f"s3://{source.place} cannot be read with this server's credentials."
        ) from None
    except (OSError, CannotOpen) as error:
        log.warning("an import cannot read s3://%s: %s", source.place, type(error.__cause__ or error).__name__)
        raise ImportFailed("source_unavailable", f"s3://{source.place} cannot be read at the moment.") from None


def _size(objects: Objects, path: str, max_bytes: int) -> int:
    size = objects.size(path)
    if size > max_bytes:
        raise ImportFailed("import_too_large", f"The source has a file of more than {max_bytes} bytes.")
    return size
