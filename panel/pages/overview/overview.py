"""What goes on at this moment: the operator sees the server, a tenant its own."""

from loragate.panel.pages.overview.server import draw_server
from loragate.panel.pages.overview.tenant import draw_tenant
from loragate.panel.pages.page import Here


def draw(here: Here) -> None:
    """Whichever it is."""
    if here.caller.is_operator:
        draw_server(here)
    else:
        draw_tenant(here)
