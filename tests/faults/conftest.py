"""The gateway of tests/gateway, to be broken."""

from tests.gateway.conftest import *  # noqa: F403
