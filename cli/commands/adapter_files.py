"""`loragate adapters upload|upload-all|import|download|export-merged|check`: transfers of adapters' files."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options

Folder = Annotated[
    Path,
    typer.Argument(
        help="A folder saved by PEFT: adapter_config.json, adapter_model.safetensors, and model.sig if it is signed.",
        file_okay=False,
    ),
]
NewName = Annotated[str | None, typer.Option("--name", help="The adapter's name. [default: the name of the folder]")]
NewAlias = Annotated[str | None, typer.Option(help="The alias to point at the new version. [default: `default`]")]


def upload(
    folder: Folder,
    name: NewName = None,
    alias: NewAlias = None,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Upload a PEFT LoRA adapter as the next version of its name. It can be used immediately, or, if no engine is
    running, as soon as one has verified it.

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
    root: Annotated[
        Path, typer.Argument(help="A folder that contains adapter folders, at any depth.", file_okay=False)
    ],
    alias: NewAlias = None,
    concurrency: Annotated[int, typer.Option(min=1, max=16, help="The number of concurrent uploads.")] = 4,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Upload every adapter below a folder, each under the name of its own folder. Unchanged adapters are skipped, so an
    interrupted upload can be repeated. The exit status is 1 if any adapter was rejected.

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
    rejected = len(outcomes) - sum(count.values())
    typer.echo(f"{count['uploaded']} uploaded, {count['unchanged']} unchanged, {rejected} rejected", err=True)
    if rejected:
        raise typer.Exit(1)


def import_(
    source: Annotated[str, typer.Argument(help="hf://ORGANIZATION/NAME@COMMIT, or s3://BUCKET/PREFIX.")],
    name: Annotated[str, typer.Option(help="The adapter's name.")],
    alias: NewAlias = None,
    use_hf_token: Annotated[
        bool, typer.Option("--use-hf-token", help="Send HF_TOKEN, for a private repository.")
    ] = False,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Import an adapter from a hub or a bucket: the server fetches it. The command waits for the end; Ctrl-C cancels
    the import.

    A hub's source without a commit, or with a branch or a tag, means the commit that the hub names now.

    Examples:

    - `loragate adapters import hf://acme/support-bot --name support-bot --alias canary`
    - `loragate adapters import s3://acme-adapters/released/support-bot --name support-bot`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.imports import hub_token, import_adapter, with_commit
    from loragate.cli.client.terminal.output import show_rows

    token = hub_token() if use_hf_token else None
    with as_tenant(base_url, api_key, data_dir) as api:
        done = import_adapter(api, with_commit(source, token), name, alias, token)
    show_rows([done], ("name", "version", "alias", "source", "bytes_done"), as_json=as_json)


def download(
    name: options.AdapterName,
    version: Annotated[int, typer.Option(help="The version to download.")],
    output: Annotated[
        Path | None, typer.Option(help="The folder to write to. [default: NAME-VERSION]", file_okay=False)
    ] = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Download the two files of a version, byte for byte as they were uploaded. PEFT can load the folder.

    Example: `loragate adapters download support-bot --version 2 --output ./support-bot`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.transfer.download import download as fetch

    folder = output or Path(f"{name}-{version}")
    with as_tenant(base_url, api_key, data_dir) as api:
        fetch(api, name, version, folder)
    typer.echo(str(folder))


def export_merged(
    name: Annotated[str, typer.Argument(help="NAME, whose latest version is taken, or NAME:VERSION.")],
    folder: Annotated[Path, typer.Argument(help="The folder to create.", file_okay=False)],
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Export the base model with a version merged into its weights, as a folder that transformers loads. The key needs
    the scope `export`, and the server `LORAGATE_MERGED_EXPORTS=true`.

    Example: `loragate adapters export-merged support-bot:2 ./support-bot-merged`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.transfer.merged_export import export_merged as export

    adapter, _, version = name.partition(":")
    if version and not (version.isdecimal() and int(version)):
        raise typer.BadParameter("write NAME:VERSION with a number from 1, or NAME", param_hint="NAME")
    with as_tenant(base_url, api_key, data_dir) as api:
        export(api, adapter, int(version) if version else None, folder)
    typer.echo(str(folder))


def check(
    folder: Folder,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = None,
) -> None:
    """Check an adapter without uploading it. The check and its messages are those of an upload, but it reads the
    server's database and needs no running server.

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


COMMANDS = (upload, upload_all, import_, download, export_merged, check)
