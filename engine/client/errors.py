"""The errors of the engine's client.

EngineError
├── EngineUnavailable      the engine is down, hung, or its connection was lost
└── EngineRequestError     the engine ended this one request with an error
"""


class EngineError(Exception):
    """Any error that ends a request on the engine's side."""


class EngineUnavailable(EngineError):
    """The engine is down, hung, or its connection was lost while the request ran."""


class EngineRequestError(EngineError):
    """The engine ended this request; others are not affected. `code` is an `engine_pb2.ErrorCode`.

    With ERROR_CODE_OVERLOADED, `retry_after` is the time in seconds after which a retry makes sense, and `own_queue` is
    true if the tenant's own requests wait.
    """

    def __init__(self, code: int, message: str, *, retry_after: float | None = None, own_queue: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.own_queue = own_queue
