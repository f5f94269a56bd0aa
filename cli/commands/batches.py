"""`loragate batches …`: files of requests that a server runs when it has time."""

from pathlib import Path
from typing import Annotated, Any

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Run files of requests when the server has time, and download the results.

Needs a tenant's key. Example: `loragate batches create requests.jsonl`, then `loragate batches download batch_3kTMd9`
""",
)

_CUT_SHORT = 130  # the status that shells report for Ctrl-C
_COLUMNS = ("id", "status", "endpoint", "request_counts", "created_at")
BatchId = Annotated[str, typer.Argument(help="The batch's id.")]


@app.command()
def create(
    requests: Annotated[str, typer.Argument(help="A file of requests as JSON lines, or the id of an uploaded file.")],
    endpoint: Annotated[str, typer.Option(help="The endpoint of all requests.")] = "/v1/chat/completions",
    window: Annotated[str, typer.Option(help="The time after which lines expire, such as 24h or 7d.")] = "24h",
    metadata: Annotated[
        list[str] | None, typer.Option(help="Metadata of the batch, as NAME=TEXT; may be repeated.")
    ] = None,
    wait: Annotated[bool, typer.Option("--watch/--no-watch", help="Follow the batch until it ends.")] = True,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Create a batch and follow it to its end. Prints only the batch's id on stdout. Ctrl-C leaves the batch running.

    Examples:

    - `loragate batches create requests.jsonl`
    - `BATCH=$(loragate batches create texts.jsonl --endpoint /v1/embeddings --window 7d --no-watch)`
    """
    from loragate.cli.client.batch import BATCHES
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.job import parse_metadata
    from loragate.cli.client.transfer.lines_file import local_file, send

    labels = parse_metadata(metadata or ())
    file = local_file(requests)
    with as_tenant(base_url, api_key, data_dir) as api:
        body = {
            "input_file_id": requests if file is None else send(api, file, "batch"),
            "endpoint": endpoint,
            "completion_window": window,
        }
        batch = api.call("POST", BATCHES, json=body | ({"metadata": labels} if labels else {}))
        if not wait:
            _show(batch, as_json)
            return
        typer.echo(f"batch {batch['id']}", err=True)
        _watch(api, batch["id"], as_json)


@app.command()
def watch(
    batch_id: BatchId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Follow a batch to its end. Ctrl-C leaves it running.

    Its progress is shown on stderr, and its id is printed on stdout, with `--json` the whole batch. The exit status is
    1 unless all its lines have been run.

    Example: `loragate batches watch batch_3kTMd9`
    """
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        _watch(api, batch_id, as_json)


@app.command()
def download(
    batch_id: BatchId,
    folder: Annotated[Path, typer.Option("--to", help="The folder for the files, which is created.")] = Path(),
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Download the results of a batch that has ended: the answers and, if lines failed, their errors. Prints the names
    of the files.

    Example: `loragate batches download batch_3kTMd9 --to results`
    """
    from loragate.cli.client.batch import batch_path, download_results
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        batch = api.call("GET", batch_path(batch_id))
        files = download_results(api, batch, folder)
        for file in files:
            typer.echo(file)
        if not files:
            typer.echo(f"the batch is {batch['status']} and has no results", err=True)


@app.command("list")
def list_(
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List batches, newest first.

    Example: `loragate batches list --json`
    """
    from loragate.cli.client.batch import BATCHES
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_rows

    with as_tenant(base_url, api_key, data_dir) as api:
        show_rows(api.list_all(BATCHES), _COLUMNS, as_json=as_json)


@app.command()
def cancel(
    batch_id: BatchId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Cancel a batch. The results that it has stay available.

    Example: `loragate batches cancel batch_3kTMd9`
    """
    from loragate.cli.client.batch import batch_path
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        _show(api.call("POST", batch_path(batch_id, "cancel")), as_json)


def _watch(api: Any, batch_id: str, as_json: bool) -> None:
    from loragate.cli.client.batch import BatchBar, follow_batch, problems_of
    from loragate.cli.errors import CliError

    bar = BatchBar(lambda line: typer.echo(line, err=True))
    try:
        with bar.progress:
            batch = follow_batch(api, batch_id, bar.show)
    except KeyboardInterrupt:
        typer.echo(f"the batch continues; to follow it again: loragate batches watch {batch_id}", err=True)
        raise typer.Exit(_CUT_SHORT) from None
    _show(batch, as_json)
    if batch["status"] != "completed":
        raise CliError(f"the batch is {batch['status']}{problems_of(batch)}")


def _show(batch: Any, as_json: bool) -> None:
    from loragate.cli.client.terminal.output import show_json

    show_json(batch) if as_json else typer.echo(batch["id"])
