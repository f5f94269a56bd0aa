"""`loragate files …`: data to train with that is still growing."""

from typing import Annotated, Any

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Files that lines are appended to while a job trains on them.

Needs a tenant's key. Example: `FILE=$(loragate files open)`, then
`loragate finetune create $FILE --set streaming=true --no-watch`, `loragate files append $FILE day-1.jsonl` and, in the
end, `loragate files close $FILE`
""",
)

FileId = Annotated[str, typer.Argument(help="The file's id.")]


@app.command("open")
def open_(
    name: Annotated[str, typer.Option(help="What it is called.")] = "growing.jsonl",
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Make an empty file that takes lines until it is closed: its id is all that goes to stdout.

    It closes by itself when nothing is appended for an hour.

    Example: `FILE=$(loragate files open --name calls.jsonl)`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_json
    from loragate.cli.client.transfer.streaming_file import opened

    with as_tenant(base_url, api_key, data_dir) as api:
        made = opened(api, name)
        show_json(made) if as_json else typer.echo(made["id"])


@app.command()
def append(
    file_id: FileId,
    lines: Annotated[str, typer.Argument(help="JSON lines of examples; - for those that come on stdin.")],
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Put lines behind those of an open file.

    They are sent in portions of up to 4 MiB, each of which counts as a whole or not at all; one whose answer is lost is
    sent again and counts once. A wrong line ends it, with its reason; what came before its portion is taken.

    Examples:

    - `loragate files append file-7hJk3mNp day-1.jsonl`
    - `make-examples | loragate files append file-7hJk3mNp -`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.transfer.streaming_file import append_all

    with as_tenant(base_url, api_key, data_dir) as api:
        grown = append_all(api, file_id, lines)
        _show(grown, as_json=as_json)


@app.command()
def close(
    file_id: FileId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Say that no lines come any more: a job on the file ends with its last one.

    Example: `loragate files close file-7hJk3mNp`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.http.paths import path

    with as_tenant(base_url, api_key, data_dir) as api:
        _show(api.call("POST", path("v1", "files", file_id, "close")), as_json=as_json)


def _show(file: dict[str, Any], *, as_json: bool) -> None:
    """It, or its id and how large it is by now."""
    from loragate.cli.client.terminal.output import show_json

    show_json(file) if as_json else typer.echo(f"{file['id']}\t{file['bytes']}")
