"""The group that turns a refusal anywhere below it into a line on stderr and an exit status."""

from typing import Any

import typer
from typer.core import TyperGroup

from loragate.cli.refusal import Refusal


class RefusingGroup(TyperGroup):
    """The root of the commands."""

    def invoke(self, ctx: Any) -> Any:
        """One line, not a wrapped panel, so that it can be searched for."""
        try:
            return super().invoke(ctx)
        except Refusal as refusal:
            typer.echo(f"error: {refusal.message}", err=True)
            raise typer.Exit(refusal.status) from None
