"""The `loragate` command: one group, one module a command, heavy imports inside the commands."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loragate.cli.commands import (
    adapters,
    admin_keys,
    audit,
    backup,
    batches,
    chat,
    demo,
    engine,
    files,
    finetune,
    gateway,
    keys,
    responses,
    secrets,
    serve,
    setup,
    tenants,
    training,
)
from loragate.cli.errors import CliError
from loragate.cli.parent_death import exit_when_parent_dies


class ErrorReportingGroup(TyperGroup):
    """The root of the commands. Turns a CliError of any command into a line on stderr and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. An error is one line, not a wrapped panel, so that logs can be searched for it."""
        try:
            return super().invoke(ctx)
        except CliError as error:
            typer.echo(f"error: {error.message}", err=True)
            raise typer.Exit(error.status) from None


app = typer.Typer(
    name="loragate",
    cls=ErrorReportingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Serve one base model to many tenants, each with many LoRA adapters.

Every option is also a `LORAGATE_<NAME>` variable and a line of `loragate.toml`; options win over variables, and
variables over the file.

Example: `loragate serve --demo`, then `loragate chat "What is the capital of France?"`
""",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loragate {version('loragate')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Handle the options that come before every command."""
    if parent is not None:
        exit_when_parent_dies(parent)


app.command()(setup.init)
app.command()(serve.serve)
app.command()(engine.engine)
app.command()(gateway.gateway)
app.command("finetune-worker")(training.finetune_worker)
app.command()(training.trainer)
app.command()(gateway.panel)
app.command("engine-trace")(engine.engine_trace)
app.command()(chat.chat)
app.command()(chat.classify)
app.add_typer(adapters.app, name="adapters")
app.add_typer(files.app, name="files")
app.add_typer(batches.app, name="batches")
app.add_typer(responses.app, name="responses")
app.add_typer(finetune.app, name="finetune")
app.add_typer(tenants.app, name="tenants")
app.add_typer(keys.app, name="keys")
app.add_typer(admin_keys.app, name="admin-keys")
app.add_typer(audit.app, name="audit")
app.add_typer(secrets.app, name="secrets")
app.command()(setup.certs)
app.add_typer(demo.app, name="demo")
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(setup.doctor)

if __name__ == "__main__":
    app()
