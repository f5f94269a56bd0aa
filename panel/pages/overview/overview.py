"""The overview: of the server for the operator, of its own use for a tenant."""

from loragate.panel.pages.overview.server import draw_server
from loragate.panel.pages.overview.tenant import draw_tenant
from loragate.panel.pages.page import PageContext


def draw(context: PageContext) -> None:
    """Draw the caller's overview."""
    if context.caller.is_operator:
        draw_server(context)
    else:
        draw_tenant(context)
