"""grpc.reflection: the description of the public services, without the engine's."""

from collections.abc import AsyncGenerator, AsyncIterator

from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio  # type: ignore[attr-defined]

from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import parse_message
from loragate.v1 import adapters_pb2, fine_tuning_pb2, inference_pb2

_MAX_BYTES = 1 << 20  # of all requests of one stream
_PUBLISHED = (inference_pb2, adapters_pb2, fine_tuning_pb2, health_pb2, reflection_pb2)


def _pool() -> DescriptorPool:
    """Return a pool of the public descriptors; the process's default pool contains the engine's too."""
    pool = DescriptorPool()
    for module in _PUBLISHED:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return pool


_SERVICES = [service.full_name for module in _PUBLISHED for service in module.DESCRIPTOR.services_by_name.values()]
_SERVICER = aio.ReflectionServicer(_SERVICES, pool=_pool())  # type: ignore[attr-defined]


async def server_reflection_info(call: Call) -> AsyncGenerator[reflection_pb2.ServerReflectionResponse, None]:
    """Yield a response to each request. The messages of v1 are those of v1alpha under another name."""
    async for response in _SERVICER.ServerReflectionInfo(_requests(call), None):
        yield response


async def _requests(call: Call) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    async for raw in call.messages(_MAX_BYTES, call.services.config.body_pace):
        yield parse_message(reflection_pb2.ServerReflectionRequest, raw)
