"""The gateway of tests/gateway, to be attacked."""

from tests.gateway.conftest import (
    client,
    config,
    engine,
    gateway,
    small_gateway,
    socket_dir,
    tenants,
    tokenizer,
    upload,
)

__all__ = ["client", "config", "engine", "gateway", "small_gateway", "socket_dir", "tenants", "tokenizer", "upload"]
