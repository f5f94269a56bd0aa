"""`loragate engine-trace`."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options


def engine_trace(
    file: Annotated[Path, typer.Argument(help="The file to write; an existing file is replaced.")],
    steps: Annotated[
        int, typer.Option(min=0, help="How many of the last steps to write; 0: all that the engine remembers.")
    ] = 0,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Write the engine's last steps as a timeline. https://ui.perfetto.dev displays the file without uploading it.

    Needs the admin key. Example: `loragate engine-trace trace.json --steps 500`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.errors import CliError

    with as_operator(base_url, admin_key, data_dir) as api:
        engine = api.call("GET", "/admin/v1/engines")["data"][0]
        where = path("admin", "v1", "engines", engine["id"], "trace")
        with api.stream("GET", where, params={"steps": steps}) as response:
            document = response.read()
    try:
        file.write_bytes(document)
    except OSError as error:
        raise CliError(f"cannot write {file}: {error.strerror}") from None
    typer.echo(f"wrote {file}: open it at https://ui.perfetto.dev")
