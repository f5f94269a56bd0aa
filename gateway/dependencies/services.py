"""Services."""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.requests import Request

from loragate.gateway.services import Services

if TYPE_CHECKING:
    pass  # which publishes with these services


def services_of(request: Request) -> Services:
    """The services of the application that serves `request`."""
    services: Services = request.app.state.services
    return services


async def _services(request: Request) -> Services:
    return services_of(request)


Use = Annotated[Services, Depends(_services)]
