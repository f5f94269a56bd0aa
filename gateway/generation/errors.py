"""Conversion of the engine's errors to errors of the API."""

from loragate.engine.client.errors import EngineError, EngineRequestError
from loragate.gateway.errors import OVERLOADED, ApiError, InvalidRequest, TooManyRequests, Unavailable, rounded_wait
from loragate.v1 import engine_pb2 as pb


class GenerationFailed(ApiError):
    """The model failed on this request; a repetition may fail likewise."""

    status = 500
    type = "server_error"
    default_code = "generation_failed"


def api_error_from(error: EngineError, constraint: str | None = None) -> ApiError:
    """Return the error for the caller. If the engine became unavailable, the request may be repeated: nothing was
    delivered yet.

    `constraint` is the field that asks for a grammar, which only the engine can check.
    """
    if not isinstance(error, EngineRequestError):
        return Unavailable("The engine is not available at the moment.", code="engine_unavailable")
    match error.code:
        case pb.ERROR_CODE_INVALID_REQUEST:
            if constraint is not None:
                message = f"Invalid '{constraint}': {error.message}."
                return InvalidRequest(message, param=constraint, code="invalid_value")
            return InvalidRequest(f"The engine rejected the request: {error.message}.")
        case pb.ERROR_CODE_ADAPTER_UNAVAILABLE:
            return Unavailable(f"The adapter cannot be loaded: {error.message}.", code="adapter_unavailable")
        case pb.ERROR_CODE_OVERLOADED:
            return _overloaded(error)
        case pb.ERROR_CODE_NON_FINITE:
            return GenerationFailed(
                "The model produced NaN or infinite values for this request.", code="non_finite_output"
            )
        case _:
            return GenerationFailed("The engine failed on this request.")


def _overloaded(error: EngineRequestError) -> ApiError:
    """Return 429 if the tenant's own requests fill its queue, 503 if the engine is busy with all tenants' requests."""
    retry_after = rounded_wait(error.retry_after or 1)
    if error.own_queue:
        message = f"Too many of your requests are waiting already: {error.message}."
        return TooManyRequests(message, code=OVERLOADED, retry_after=retry_after)
    message = f"The engine is overloaded at the moment: {error.message}."
    return Unavailable(message, code=OVERLOADED, retry_after=retry_after)
