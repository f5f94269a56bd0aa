"""Keeps from one test to the next what a process of the product makes once: compiled SQL, commands, TLS contexts.

Each test has a store, a client or a command of its own. Without this, a tenth of the tests' time goes into making the
same again.
"""

import functools
import os
from typing import Any

import httpx
import typer.testing
from sqlalchemy.engine import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

_STATEMENTS = 4000  # more than all tests of a process execute


def compile_once() -> None:
    """Share compiled statements among engines, the command line among runs, and the default TLS context."""
    _share_statements()
    typer.testing._get_command = functools.cache(typer.testing._get_command)
    _share_tls_context()


def _share_statements() -> None:
    """Engines look compiled statements up by their dialect, of which each engine has one: let equal ones be one key."""
    shared: Any = LRUCache(_STATEMENTS)
    original = Engine.__init__

    def __init__(self: Engine, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self._compiled_cache is not None:
            self._compiled_cache = shared

    Engine.__init__ = __init__  # type: ignore[method-assign]
    DefaultDialect.__hash__ = lambda self: hash(_kind(self))  # type: ignore[method-assign]
    DefaultDialect.__eq__ = lambda self, other: isinstance(other, DefaultDialect) and _kind(self) == _kind(other)  # type: ignore[method-assign]


def _kind(dialect: Any) -> tuple[Any, ...]:
    """Return what compiled statements depend on."""
    serializers = getattr(dialect, "_json_serializer", None), getattr(dialect, "_json_deserializer", None)
    return type(dialect), dialect.paramstyle, *serializers


def _share_tls_context() -> None:
    original = httpx._config.create_ssl_context

    @functools.cache
    def default(trust_env: bool, cert_file: str | None, cert_dir: str | None) -> Any:
        return original(trust_env=trust_env)  # reads both variables

    def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is True and cert is None:
            named = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")) if trust_env else (None, None)
            return default(trust_env, *named)
        return original(verify, cert, trust_env)

    for module in (httpx._config, httpx._transports.default):
        module.create_ssl_context = create_ssl_context  # type: ignore[attr-defined]
