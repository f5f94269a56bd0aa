"""The dispatcher of all calls: metrics, rejection while draining, authentication, the method's handler, errors."""

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import grpc
import grpc.aio

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.errors import StoreError
from loragate.gateway.connections.peers import TrustedProxies, network_of
from loragate.gateway.dependencies.requirements import Public, TenantWith
from loragate.gateway.errors import OVERLOADED, ApiError, InternalError, ShuttingDown, Unavailable, error_details
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.connection import ClientGone, MessageStream
from loragate.gateway.grpc.methods import Method
from loragate.gateway.grpc.metrics import GrpcMetrics
from loragate.gateway.grpc.status import status_code, status_message, trailing_metadata
from loragate.gateway.http.access_log import log_exception, write_access_line
from loragate.gateway.http.bodies import ANONYMOUS
from loragate.gateway.http.context import RequestContext, new_context
from loragate.gateway.http.disconnect import until_deadline
from loragate.gateway.resilience.fair_places import FairPlaces, NoPlace
from loragate.gateway.services import Services

log = logging.getLogger(__name__)

ServicerContext = grpc.aio.ServicerContext[Any, Any]
_Run = Callable[[MessageStream, RequestContext], Coroutine[Any, Any, None]]

_MAX_CALLS = 4096  # of tenants


class Dispatcher(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Dispatches the methods of its table.

    All are handled as streams of bytes in both directions, which a client cannot distinguish from the kind of method
    that it calls. The key is therefore checked before anything else of the call is read, and malformed messages result
    in errors of the gateway.
    """

    def __init__(self, services: Services, methods: Mapping[str, Method], metrics: GrpcMetrics) -> None:
        self._services = services
        self._metrics = metrics
        self._tenants = FairPlaces(_MAX_CALLS)
        self._proxies = TrustedProxies(services.config.trusted_proxies)
        self._handlers = {
            name: grpc.stream_stream_rpc_method_handler(self._handler(name, method)) for name, method in methods.items()
        }

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler of a method; None for an unknown method."""
        return self._handlers.get(details.method)

    def _handler(self, name: str, method: Method) -> Callable[[object, ServicerContext], Coroutine[Any, Any, None]]:
        run = self._public(method) if isinstance(method.requirement, Public) else self._of_tenant(method)

        async def handle(requests: object, context: ServicerContext) -> None:
            await self._handle(name, run, context, public=isinstance(method.requirement, Public))

        return handle

    async def _handle(self, name: str, run: _Run, rpc: ServicerContext, *, public: bool) -> None:
        config = self._services.config
        stream = MessageStream(rpc, config.max_json_bytes, config.body_pace, self._proxies)
        context = new_context(stream.metadata.get("x-request-id", ""), stream.peer)
        status = grpc.StatusCode.CANCELLED
        try:
            with self._counted(public=public):
                status = await self._respond(run, stream, context, public=public)
        finally:
            self._metrics.completed(name, status.name, context.elapsed_seconds)
            level = logging.DEBUG if public else logging.INFO
            write_access_line(level, "gRPC", name, context, status.name)

    @contextmanager
    def _counted(self, *, public: bool) -> Iterator[None]:
        """Count a call while the block lasts. A drain does not wait for public calls, which may watch the health."""
        with self._metrics.in_flight():
            if public:
                yield
            else:
                with self._services.lifecycle.request():
                    yield

    async def _respond(
        self, run: _Run, stream: MessageStream, context: RequestContext, *, public: bool
    ) -> grpc.StatusCode:
        """Run the call and return its status."""
        try:
            if self._services.lifecycle.draining and not public:
                raise ShuttingDown
            await until_deadline(run(stream, context), self._services.lifecycle)
        except ClientGone:
            stream.finish(grpc.StatusCode.CANCELLED, "The client did not read its messages.")
            return grpc.StatusCode.CANCELLED
        except (ApiError, StoreError) as error:
            return _fail(stream, error, context)
        except NoPlace:
            busy = Unavailable("Too many calls are running at the moment.", code=OVERLOADED)
            return _fail(stream, busy, context)
        except Exception as error:
            log_exception(log, error, context.request_id)
            return _fail(stream, InternalError(context.request_id), context)
        return grpc.StatusCode.OK

    def _public(self, method: Method) -> _Run:
        places = FairPlaces(method.max_public_calls)

        async def run(stream: MessageStream, context: RequestContext) -> None:
            with places.hold(network_of(context.peer)):
                await self._run(method, stream, context, None)

        return run

    def _of_tenant(self, method: Method) -> _Run:
        async def run(stream: MessageStream, context: RequestContext) -> None:
            assert isinstance(method.requirement, TenantWith)
            # Until the caller is known, it holds no place: the authenticator bounds how many may wait.
            authorization = stream.metadata.get("authorization", "")
            caller = await method.requirement.admit(self._services, authorization, context)
            with self._tenants.hold(caller.tenant_id):
                await self._run(method, stream, context, caller)

        return run

    async def _run(
        self, method: Method, stream: MessageStream, context: RequestContext, caller: TenantPrincipal | None
    ) -> None:
        owner = ANONYMOUS if caller is None else caller.tenant_id
        with self._services.body_budget.reserve(owner, 0) as reserved:
            headers = {"x-request-id": context.request_id}
            call = Call(self._services, context, stream, reserved, headers, caller)
            async with aclosing(method.handler(call)) as messages:
                async for message in messages:
                    await stream.send(message.SerializeToString(), call.headers)


def _fail(stream: MessageStream, error: ApiError | StoreError, context: RequestContext) -> grpc.StatusCode:
    details = error_details(error)
    code = status_code(details)
    stream.finish(code, status_message(details), trailing_metadata(details, context.request_id))
    return code
