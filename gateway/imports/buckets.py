"""Import from a bucket: reads the files with the operator's credentials, where the operator allows it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial

from loragate.adapter_store.blobs.blobs import TENSORS_FILE, open_objects
from loragate.adapter_store.blobs.filesystem import Objects
from loragate.adapter_store.errors import CannotOpen
from loragate.adapter_store.signatures.bundle import SIGNATURE_FILE
from loragate.gateway.imports.source import BucketSource, FileSizes, ImportFailed

log = logging.getLogger(__name__)


async def bucket_files(
    source: BucketSource, sizes: FileSizes, set_total: Callable[[int | None], None]
) -> AsyncIterator[tuple[str, bytes]]:
    """Yield pieces of the files with the file's name. Call `set_total` with the size. Raise ImportFailed."""
    try:
        objects, root = await asyncio.to_thread(open_objects, f"s3://{source.place}")
        for file, max_bytes in sizes.items():
            try:
                size = await asyncio.to_thread(partial(_size, objects, f"{root}/{file}", max_bytes))
            except FileNotFoundError:
                if file == SIGNATURE_FILE:
                    continue
                raise
            if file == TENSORS_FILE:
                set_total(size)
            left = size
            async for piece in objects.chunks(f"{root}/{file}"):
                left -= len(piece)
                if left < 0:
                    raise ImportFailed("source_changed", f"s3://{source.place} was changed while it was read.")
                yield file, piece
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
