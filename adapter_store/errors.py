"""The store's exceptions.

    StoreError
    ├── Invalid             400  an invalid value; `param` names the field
    │   └── AdapterInvalid  400  an uploaded adapter cannot be served; `param` names the file and the tensor
    ├── Forbidden           403  it exists, but is out of service
    ├── NotFound            404  it does not exist in this scope (another tenant's is the same 404)
    ├── Conflict            409  the request is valid, but the current state forbids it
    │   └── LeaseLost       409  another worker holds the job
    ├── Unavailable         503  try again later: the database, the blobs or the engine's manifest is missing
    │   └── NotTried        503  no engine was available to try an adapter
    ├── StorageFull         507  the disk (or the database's file system) is full
    └── CannotOpen          503  this database does not belong to this installation; the start fails
        ├── WrongSecretKey
        └── SchemaMismatch

Each class owns its HTTP status and the `type` and `code` of OpenAI's error envelope. Errors of SQLAlchemy, of
the drivers and of the file system never leave the store: `loragate.adapter_store.database.error_mapping` maps them.
"""

from dataclasses import dataclass
from typing import ClassVar


class StoreError(Exception):
    """The base class; `message` is one sentence for the caller, without secrets."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param


class Invalid(StoreError):
    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"


class AdapterInvalid(Invalid):
    default_code = "invalid_adapter"


class Forbidden(StoreError):
    status = 403
    type = "permission_error"
    default_code = "forbidden"


class NotFound(StoreError):
    status = 404
    type = "invalid_request_error"
    default_code = "not_found"


class Conflict(StoreError):
    status = 409
    type = "invalid_request_error"
    default_code = "conflict"


class Unavailable(StoreError):
    status = 503
    type = "server_error"
    default_code = "service_unavailable"
    retry_after: ClassVar[int] = 1  # seconds, for the `retry-after` header


class NotTried(Unavailable):
    default_code = "engine_unavailable"


class StorageFull(StoreError):
    status = 507
    type = "server_error"
    default_code = "insufficient_storage"


class CannotOpen(StoreError):
    status = 503
    default_code = "cannot_open"


class WrongSecretKey(CannotOpen):
    default_code = "wrong_secret_key"


class SchemaMismatch(CannotOpen):
    default_code = "schema_mismatch"


@dataclass(frozen=True)
class Failure:
    """An error as it is stored, in the fields of the error envelope."""

    code: str
    message: str
    param: str | None = None
