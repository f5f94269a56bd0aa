"""Mapping of the drivers' and the file system's errors to the store's own."""

import errno
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from loragate.adapter_store.errors import Conflict, Invalid, StorageFull, StoreError, Unavailable

log = logging.getLogger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_DISK_FULL = "53100"
_NO_TEXT = "22021"
_LOCK_NOT_AVAILABLE = "55P03"


@contextmanager
def database_faults() -> Iterator[None]:
    """Map errors of SQLAlchemy and the drivers; asyncpg raises bare OSErrors when it cannot connect."""
    try:
        yield
    except PoolTimeoutError as error:
        raise Unavailable("The database has no free connection; try again.") from error
    except DBAPIError as error:
        raise _of_driver(error) from error
    except OSError as error:
        raise Unavailable("The database cannot be reached; try again.") from error


@contextmanager
def blob_faults() -> Iterator[None]:
    """Map errors of the file system under the blobs."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("There is no space left for adapters.") from error
        log.warning("the blob storage failed: %s", error)
        raise Unavailable("The adapters' storage cannot be reached; try again.") from error


def _of_driver(error: DBAPIError) -> StoreError | DBAPIError:
    """Return the store's error; an error that is neither environmental nor a lost race is a bug and stays as it is."""
    if isinstance(error, IntegrityError):
        return Conflict("Another request changed the same object at the same time; try again.")
    if _postgres_code(error) == _NO_TEXT:
        return Invalid("A text contains the character NUL, which is not allowed.")
    if _is_full(error):
        return StorageFull("There is no space left for the database.")
    connecting = error.statement is None
    if connecting or error.connection_invalidated or isinstance(error, OperationalError | InterfaceError):
        return Unavailable("The database is busy or cannot be reached; try again.")
    return error


def is_lock_timeout(error: DBAPIError) -> bool:
    """Return whether a statement gave up after Postgres' `lock_timeout`."""
    return _postgres_code(error) == _LOCK_NOT_AVAILABLE


def _is_full(error: DBAPIError) -> bool:
    sqlite_code = getattr(error.orig, "sqlite_errorcode", None)
    return _postgres_code(error) == _DISK_FULL or sqlite_code == sqlite3.SQLITE_FULL


def _postgres_code(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)
