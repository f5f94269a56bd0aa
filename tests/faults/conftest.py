"""The gateway of tests/gateway, for fault injection."""

from tests.gateway.conftest import *  # noqa: F403
