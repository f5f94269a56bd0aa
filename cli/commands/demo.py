"""`loragate demo`: serve the shipped demo and show its answers, make it again, or create its tenants on a server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loragate.cli import options

if TYPE_CHECKING:
    import httpx

    from loragate.cli.data_dir.runtime_file import Addresses

app = typer.Typer()
_QUESTION = "What is the capital of France?"


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    panel_port: options.PanelPort = None,
    data_dir: options.DataDir = None,
    once: Annotated[bool, typer.Option("--once", help="Stop after the answers; the status is 0 if all came.")] = False,
) -> None:
    """Serve a tiny model with three tenants and seven adapters, and show an answer of each adapter.

    Then it serves until Ctrl-C, as `loragate serve --demo` does.

    Examples:

    - `loragate demo`
    - `loragate demo --once`, to find out whether an installation works
    - `uvx --torch-backend cpu loragate demo --port 9000`, without installing anything
    """
    if context.invoked_subcommand is not None:
        return
    import asyncio
    import os
    import signal

    from loragate.cli.settings.load import load
    from loragate.cli.supervisor.serve import serve

    settings = load(demo=True, port=port, grpc_port=grpc_port, panel_port=panel_port, data_dir=data_dir)

    async def show(where: "Addresses") -> None:
        await _show_answers(where, settings.data_dir)
        if once:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            typer.echo(f"\nThe keys are in {settings.data_dir / 'demo.json'}. Ctrl-C stops the server.")

    raise typer.Exit(asyncio.run(serve(settings, when_ready=show)))


async def _show_answers(where: "Addresses", data_dir: Path) -> None:
    """Ask each adapter of the demo and print the answers while they arrive. Raise CliError if one fails."""
    from loragate.cli.errors import CliError
    from loragate.cli.supervisor.readiness import local_client
    from loragate.demo.demo_file import read_demo_file

    known = read_demo_file(data_dir)
    if known is None:
        raise CliError(f"{data_dir} has no keys of the demo: remove it, or choose another folder with --data-dir")
    typer.echo(f"\n{_QUESTION}\n")
    async with local_client(where.tls, base_url=where.base_url, timeout=60) as client:
        for tenant in known.tenants:
            for adapter in tenant.adapters:
                typer.echo(f"  {tenant.name + ' / ' + adapter:<20} ", nl=False)
                async for text in _stream(client, tenant.api_key, adapter):
                    typer.echo(" ".join(text.split("\n")), nl=False)
                typer.echo()


async def _stream(client: "httpx.AsyncClient", key: str, model: str) -> AsyncIterator[str]:
    """Yield the parts of a model's answer to the question. Raise CliError if there is none."""
    import httpx

    from loragate.cli.client.terminal.conversation import text_in
    from loragate.cli.errors import CliError

    body = {"model": model, "messages": [{"role": "user", "content": _QUESTION}], "stream": True}
    headers = {"authorization": f"Bearer {key}"}
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if text := text_in(line):
                    yield text
    except httpx.HTTPError as error:
        raise CliError(f"the demo did not answer: {error}") from None


@app.command()
def build(
    out: Annotated[
        Path, typer.Option(help="The folder to build in. An interrupted build continues where it was.")
    ] = Path("loragate-demo"),
) -> None:
    """Train the demo's base model and adapters from their recipe, and print the model's folder.

    The package ships the result, so this is only needed to check it, or to change it. It takes about half an hour
    on two cores.

    Examples:

    - `loragate demo build`
    - `loragate demo build --out /tmp/demo`, then `loragate serve --model /tmp/demo/loragate-demo`
    """
    from rich.console import Console

    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.cli.optional_dependencies import INSTALL_FINETUNE, missing_finetune_packages
    from loragate.demo import BuildError, shipped_mismatch
    from loragate.demo import build as build_demo

    if missing := missing_finetune_packages():
        raise CliError(f"training the demo needs {', '.join(missing)}: {INSTALL_FINETUNE}", BAD_SETTING)
    typer.echo(shipped_mismatch() or "demo: the shipped demo has this recipe", err=True)
    try:
        assets = build_demo(out, console=Console(stderr=True))
    except BuildError as error:
        raise CliError(str(error)) from None
    typer.echo(assets.model_dir)


@app.command()
def keys(data_dir: options.DataDir = None) -> None:
    """Print commands for a shell that export the keys of the demo's tenants and the admin key.

    Example: `eval "$(loragate demo keys)"`, then `echo $ACME_KEY $GLOBEX_KEY $INITECH_KEY $ADMIN_KEY`
    """
    import re
    import shlex

    from loragate.cli.errors import CliError
    from loragate.cli.settings.load import load
    from loragate.demo.demo_file import read_demo_file

    folder = load(data_dir=data_dir).data_dir
    known = read_demo_file(folder)
    if known is None:
        raise CliError(f"{folder} has no keys of the demo: start it with `loragate serve --demo`")
    # Quoted, because a shell evaluates what a file in this folder says.
    for tenant in known.tenants:
        name = re.sub(r"\W", "_", tenant.name.upper(), flags=re.ASCII)
        typer.echo(f"export {name}_KEY={shlex.quote(tenant.api_key)}")
    typer.echo(f"export ADMIN_KEY={shlex.quote(known.admin_key)}")


@app.command(hidden=True)
def provision(
    base_url: options.BaseUrl = None, admin_key: options.AdminKey = None, data_dir: options.DataDir = None
) -> None:
    """Create the demo's tenants, keys and adapters on a running server.

    Example: `loragate demo provision --base-url http://127.0.0.1:8000`
    """
    from loragate.cli.client.http.api import verification
    from loragate.cli.client.http.connect import find_admin_key, find_server, key_from
    from loragate.cli.settings.load import load
    from loragate.demo import provision as provision_demo
    from loragate.demo import shipped_assets, shipped_mismatch

    options = {"base_url": base_url, "admin_key": key_from(admin_key), "data_dir": data_dir}
    settings = load(**options)
    server = find_server(settings, options)
    if mismatch := shipped_mismatch():
        typer.echo(mismatch, err=True)
    key = find_admin_key(settings, options, server)
    provision_demo(shipped_assets(), server.base_url, key, settings.data_dir, verify=verification(server.tls))
