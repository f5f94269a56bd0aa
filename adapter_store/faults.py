"""Errors of the layers below, told in the store's own."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from loragate.adapter_store.errors import Conflict, StorageFull, StoreError, Unavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def database_faults() -> Iterator[None]:
    """Maps what SQLAlchemy and the drivers raise; asyncpg raises bare OSErrors when it cannot connect."""
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
    """Maps what the file system under the blobs raises."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("There is no space left for adapters.") from error
        raise Unavailable("The adapters' storage cannot be reached; try again.") from error


def _of_driver(error: DBAPIError) -> StoreError | DBAPIError:
    """What is neither a fault of the surroundings nor a lost race is a bug and stays as it is."""
    if isinstance(error, IntegrityError):
        return Conflict("Somebody else changed the same thing at the same time; try again.")
    if _is_full(error):
        return StorageFull("There is no space left for the database.")
    connecting = error.statement is None
    if connecting or error.connection_invalidated or isinstance(error, OperationalError | InterfaceError):
        return Unavailable("The database is busy or cannot be reached; try again.")
    return error


def _is_full(error: DBAPIError) -> bool:
    cause: BaseException | None = error.orig
    postgres_code = getattr(cause, "sqlstate", None)
    sqlite_code = getattr(cause, "sqlite_errorcode", None)
    return postgres_code == "53100" or sqlite_code == sqlite3.SQLITE_FULL
