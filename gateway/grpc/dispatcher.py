"""The way of every call: counted, refused while draining, asked for its key, answered, told what went wrong."""

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import grpc
import grpc.aio

from loragate.adapter_store.errors import StoreError
from loragate.gateway.dependencies.requirements import Public
from loragate.gateway.errors import OVERLOADED, ApiError, InternalError, ShuttingDown, Unavailable, refused
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.connection import Hangup, Wire
from loragate.gateway.grpc.methods import Method
from loragate.gateway.grpc.metrics import GrpcMetrics
from loragate.gateway.grpc.status import code_of, message_of, trailers_of
from loragate.gateway.http.access_log import log_exception, write_access_line
from loragate.gateway.http.context import RequestContext, new_context
from loragate.gateway.http.disconnect import until_deadline
from loragate.gateway.services import Services

log = logging.getLogger(__name__)

ServicerContext = grpc.aio.ServicerContext[Any, Any]

_MOST_CALLS = 4096
_MOST_PUBLIC_CALLS = 64  # of those who show no key


class Dispatcher(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Knows the methods of its table and no others.

    All are handled as streams of bytes both ways, which a client cannot tell from the kind that it calls: so the key
    is asked for before anything else of the call is read, and malformed messages are our errors to tell.
    """

    def __init__(self, services: Services, methods: Mapping[str, Method], metrics: GrpcMetrics) -> None:
        self._services = services
        self._metrics = metrics
        self._running = {True: 0, False: 0}  # public or not
        self._handlers = {
            name: grpc.stream_stream_rpc_method_handler(self._handler(name, method)) for name, method in methods.items()
        }

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """How a method is called; None for one that does not exist."""
        return self._handlers.get(details.method)

    def _handler(self, name: str, method: Method) -> Callable[[object, ServicerContext], Coroutine[Any, Any, None]]:
        async def handle(requests: object, context: ServicerContext) -> None:
            await self._handle(name, method, context)

        return handle

    async def _handle(self, name: str, method: Method, rpc: ServicerContext) -> None:
        config = self._services.config
        wire = Wire(rpc, config.max_json_bytes, config.body_pace)
        context = new_context(wire.metadata.get("x-request-id", ""))
        status = grpc.StatusCode.CANCELLED
        public = isinstance(method.requirement, Public)
        try:
            with self._counted(public=public):
                status = await self._answered(method, wire, context, public=public)
        finally:
            self._metrics.answered(name, status.name, context.elapsed_seconds)
            level = logging.DEBUG if public else logging.INFO
            write_access_line(level, "gRPC", name, context, status.name)

    @contextmanager
    def _counted(self, *, public: bool) -> Iterator[None]:
        """A drain does not wait for those who watch the health."""
        self._running[public] += 1
        try:
            with self._metrics.in_flight():
                if public:
                    yield
                else:
                    with self._services.lifecycle.request():
                        yield
        finally:
            self._running[public] -= 1

    async def _answered(self, method: Method, wire: Wire, context: RequestContext, *, public: bool) -> grpc.StatusCode:
        """What the call ends with."""
        try:
            self._check_room(public=public)
            await until_deadline(self._answer(method, wire, context), self._services.lifecycle)
        except Hangup:
            wire.finish(grpc.StatusCode.CANCELLED, "The client took no messages.")
            return grpc.StatusCode.CANCELLED
        except (ApiError, StoreError) as error:
            return _refuse(wire, error, context)
        except Exception as error:
            log_exception(log, error, context.request_id)
            return _refuse(wire, InternalError(context.request_id), context)
        return grpc.StatusCode.OK

    def _check_room(self, *, public: bool) -> None:
        if self._services.lifecycle.draining and not public:
            raise ShuttingDown
        if self._running[public] > (_MOST_PUBLIC_CALLS if public else _MOST_CALLS):
            raise Unavailable("Too many calls run at the moment.", code=OVERLOADED)

    async def _answer(self, method: Method, wire: Wire, context: RequestContext) -> None:
        call = Call(self._services, context, wire, {"x-request-id": context.request_id})
        if not isinstance(method.requirement, Public):
            authorization = wire.metadata.get("authorization", "")
            call.caller = await method.requirement.admit(self._services, authorization, context)
        async with aclosing(method.answer(call)) as messages:
            async for message in messages:
                await wire.send(message.SerializeToString(), call.headers)


def _refuse(wire: Wire, error: ApiError | StoreError, context: RequestContext) -> grpc.StatusCode:
    told = refused(error)
    wire.finish(code_of(told), message_of(told), trailers_of(told, context.request_id))
    return code_of(told)
