"""The body of POST /v1/imports."""

from typing import Annotated

from pydantic import StringConstraints

from loragate.prompts.body import Body

Text = Annotated[str, StringConstraints(max_length=1024)]


class ImportCreate(Body):
    """`token` is for a hub whose repository is not public. It is used for this import alone, and never kept."""

    source: Text
    name: Text
    alias: Text | None = None
    token: Annotated[str, StringConstraints(max_length=1024, pattern=r"^[!-~]+$")] | None = None
