"""The services of the application, as a dependency of its routes."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from loragate.gateway.services import Services


def services_of(request: Request) -> Services:
    """Return the services of the application that serves `request`."""
    services: Services = request.app.state.services
    return services


async def _services(request: Request) -> Services:
    return services_of(request)


Use = Annotated[Services, Depends(_services)]
