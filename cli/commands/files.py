"""`loragate files …`: training files that lines are still appended to."""

from typing import Annotated, Any

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Create training files that lines are appended to while a job trains on them.

Needs a tenant's key. Example: `FILE=$(loragate files open)`, then
`loragate finetune create $FILE --set streaming=true --no-watch`, `loragate files append $FILE day-1.jsonl` and, in the
end, `loragate files close $FILE`
""",
)

FileId = Annotated[str, typer.Argument(help="The file's id.")]


@app.command("open")
def open_(
    name: Annotated[str, typer.Option(help="The file's name.")] = "growing.jsonl",
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Create an empty file that lines can be appended to until it is closed. Prints only its id on stdout.

    The file is closed automatically when nothing has been appended for an hour.

    Example: `FILE=$(loragate files open --name calls.jsonl)`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_json
    from loragate.cli.client.transfer.streaming_file import create_open_file

    with as_tenant(base_url, api_key, data_dir) as api:
        file = create_open_file(api, name)
        show_json(file) if as_json else typer.echo(file["id"])


@app.command()
def append(
    file_id: FileId,
    lines: Annotated[str, typer.Argument(help="A file of examples as JSON lines; - reads stdin.")],
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Append lines to an open file.

    Lines are sent in chunks of up to 4 MiB. A chunk is appended completely or not at all; a chunk whose response was
    lost is sent again and appended once. An invalid line ends the command with the reason; the chunks before it are
    kept.

    Examples:

    - `loragate files append file-7hJk3mNp day-1.jsonl`
    - `make-examples | loragate files append file-7hJk3mNp -`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.transfer.streaming_file import append_all

    with as_tenant(base_url, api_key, data_dir) as api:
        file = append_all(api, file_id, lines)
        _show(file, as_json=as_json)


@app.command()
def close(
    file_id: FileId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Close a file: no more lines can be appended, and a job that trains on it ends with its last line.

    Example: `loragate files close file-7hJk3mNp`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        _show(api.call("POST", path("v1", "files", file_id, "close")), as_json=as_json)


def _show(file: dict[str, Any], *, as_json: bool) -> None:
    """Print the file as JSON, or its id and size."""
    from loragate.cli.client.terminal.output import show_json

    show_json(file) if as_json else typer.echo(f"{file['id']}\t{file['bytes']}")
