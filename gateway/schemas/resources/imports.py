"""The body of POST /v1/imports."""

from typing import Annotated

from pydantic import StringConstraints

from loragate.prompts.bodies import Body

Text = Annotated[str, StringConstraints(max_length=1024)]


class ImportCreate(Body):
    """Body of POST /v1/imports. `token` gives access to a private repository of the hub. It is used for this import
    only and is never stored."""

    source: Text
    name: Text
    alias: Text | None = None
    token: Annotated[str, StringConstraints(max_length=1024, pattern=r"^[!-~]+$")] | None = None
