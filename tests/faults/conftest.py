"""The gateway of tests/gateway, to be broken."""

from tests.gateway.conftest import (
    clock,
    config,
    engine,
    gateway,
    small_gateway,
    socket_dir,
    tenants,
    tokenizer,
    upload,
)

__all__ = ["clock", "config", "engine", "gateway", "small_gateway", "socket_dir", "tenants", "tokenizer", "upload"]
