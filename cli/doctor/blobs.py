"""The check of the blob store: its driver is installed, and it can be written to."""

import asyncio

from fsspec.utils import get_protocol

from loragate.adapter_store.blobs.blobs import Blobs
from loragate.adapter_store.errors import StoreError
from loragate.cli.doctor.finding import Finding, fail, ok
from loragate.cli.settings.model import Settings


def check_blobs(settings: Settings) -> Finding:
    """Check the blob store. Unless it is the local disk, a small file is written and removed."""
    protocol = get_protocol(settings.effective_blob_url)
    try:
        blobs = Blobs(settings.effective_blob_url)
        if protocol != "file":
            asyncio.run(blobs.try_out())
    except StoreError as error:
        advice = "correct LORAGATE_BLOB_URL, or check the driver, the endpoint (AWS_ENDPOINT_URL) and the credentials"
        reason = f": {error.__cause__}" if error.__cause__ is not None else ""
        return fail("blobs", f"{protocol}: {error.message}{reason}", advice)
    if protocol != "file":
        return ok("blobs", f"{protocol}, writable")
    if settings.replicas == 1:
        return ok("blobs", "local disk")
    found = f"a folder, for {settings.replicas} replicas (LORAGATE_REPLICAS)"
    if settings.blob_folder_is_shared:
        return ok("blobs", f"{found}, which share it (LORAGATE_BLOB_FOLDER_IS_SHARED)")
    advice = "set LORAGATE_BLOB_URL to a bucket, or LORAGATE_BLOB_FOLDER_IS_SHARED=true if all mount this folder"
    return fail("blobs", found, advice)
