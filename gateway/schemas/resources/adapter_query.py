"""Query parameters that filter a list of adapters."""

from typing import Annotated

from fastapi import Depends, Query

from loragate.adapter_store.adapters.adapter import AdapterStatus
from loragate.adapter_store.adapters.filter import MAX_FILTER_TAGS, AdapterFilter


async def _wanted(
    search: Annotated[
        str,
        Query(
            max_length=1000,
            description="Part of the name, of a tag or of the description, in any case. One or two letters match only "
            "the beginning of words.",
        ),
    ] = "",
    tag: Annotated[
        tuple[str, ...], Query(max_length=MAX_FILTER_TAGS, description="Only adapters with this tag; may be repeated.")
    ] = (),
    status: Annotated[
        AdapterStatus | None, Query(description="Only adapters with this status; by default all that are not deleted.")
    ] = None,
) -> AdapterFilter:
    return AdapterFilter(search, tag, status)


Wanted = Annotated[AdapterFilter, Depends(_wanted)]
