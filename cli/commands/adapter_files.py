"""`loragate adapters upload|upload-all|import|download|check`: an adapter's files on their way."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options

Folder = Annotated[
    Path, typer.Argument(help="What PEFT saved: adapter_config.json and adapter_model.safetensors.", file_okay=False)
]
NewName = Annotated[str | None, typer.Option("--name", help="The adapter's name. [default: the folder's name]")]
NewAlias = Annotated[str | None, typer.Option(help="The alias that moves to the new version. [default: `default`]")]


def upload(
    folder: Folder,
    name: NewName = None,
    alias: NewAlias = None,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Upload a PEFT LoRA adapter as the next version of its name; it can be used at once, or else as soon as
    an engine is there.

    Examples:

    - `loragate adapters upload ./outputs/support-bot`
    - `loragate adapters upload ./outputs/checkpoint-800 --name support-bot --alias canary`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import VERSION_COLUMNS, show_rows
    from loragate.cli.client.transfer.upload import outcome
    from loragate.cli.client.transfer.upload import upload as send

    with as_tenant(base_url, api_key, data_dir) as api:
        version = send(api, folder, name or folder.resolve().name, alias)
    show_rows([version], VERSION_COLUMNS, as_json=as_json)
    typer.echo(outcome(version, alias or "default"), err=True)


def upload_all(
    root: Annotated[Path, typer.Argument(help="A folder with such folders in it, at any depth.", file_okay=False)],
    alias: NewAlias = None,
    concurrency: Annotated[int, typer.Option(min=1, max=16, help="Number of concurrent uploads.")] = 4,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Upload every adapter below a folder, each under its own folder's name. Those that are there already are left out,
    so that it can be run again after a break. The exit status is 1 when any was refused.

    Examples:

    - `loragate adapters upload-all ./outputs`
    - `loragate adapters upload-all ./outputs --alias nightly --concurrency 8 --json`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_rows
    from loragate.cli.client.transfer.bulk import upload_all as send_all

    with as_tenant(base_url, api_key, data_dir) as api:
        outcomes = send_all(api, root, alias, concurrency)
    columns = ("folder", "name", "status", "version", "words")
    show_rows([outcome.row() for outcome in outcomes], columns, as_json=as_json)
    count = {status: sum(outcome.status == status for outcome in outcomes) for status in ("uploaded", "unchanged")}
    refused = len(outcomes) - sum(count.values())
    typer.echo(f"{count['uploaded']} uploaded, {count['unchanged']} there already, {refused} refused", err=True)
    if refused:
        raise typer.Exit(1)


def import_(
    source: Annotated[str, typer.Argument(help="hf://organisation/name@<commit>, or s3://bucket/prefix.")],
    name: Annotated[str, typer.Option(help="The adapter's name.")],
    alias: NewAlias = None,
    use_hf_token: Annotated[
        bool, typer.Option("--use-hf-token", help="Send HF_TOKEN, for a repository that is not public.")
    ] = False,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Have the server fetch an adapter from a hub or a bucket, and wait until it has. Ctrl-C cancels it.

    Examples:

    - `loragate adapters import hf://acme/support-bot@<40 hexadecimal digits> --name support-bot --alias canary`
    - `loragate adapters import s3://acme-adapters/released/support-bot --name support-bot`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.imports import hub_token, import_adapter
    from loragate.cli.client.terminal.output import show_rows

    token = hub_token() if use_hf_token else None
    with as_tenant(base_url, api_key, data_dir) as api:
        done = import_adapter(api, source, name, alias, token)
    show_rows([done], ("name", "version", "alias", "source", "bytes_done"), as_json=as_json)


def download(
    name: options.AdapterName,
    version: Annotated[int, typer.Option(help="Which version.")],
    output: Annotated[Path | None, typer.Option(help="A folder. [default: NAME-VERSION here]", file_okay=False)] = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Download a version's two files, byte for byte as they were uploaded; PEFT loads the folder.

    Example: `loragate adapters download support-bot --version 2 --output ./support-bot`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.transfer.download import download as fetch

    folder = output or Path(f"{name}-{version}")
    with as_tenant(base_url, api_key, data_dir) as api:
        fetch(api, name, version, folder)
    typer.echo(str(folder))


def check(
    folder: Folder,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = None,
) -> None:
    """Check an adapter without sending it, beside the server's data: the same words as an upload, and no server needed.

    Examples:

    - `loragate adapters check ./outputs/support-bot`
    - `LORAGATE_DATABASE_URL=postgresql://db/loragate loragate adapters check ./outputs/support-bot --json`
    """
    from loragate.cli.client.terminal.output import show_rows
    from loragate.cli.client.transfer.checking import check as read
    from loragate.cli.settings.load import load

    found = read(load(data_dir=data_dir), folder)
    show_rows([found], ("base_model", "rank", "size_bytes", "kinds", "digest"), as_json=as_json)
    for warning in found["warnings"]:
        typer.echo(f"warning: {warning}", err=True)


COMMANDS = (upload, upload_all, import_, download, check)
