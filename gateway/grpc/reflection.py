"""grpc.reflection: the description of the public services, without the engine's."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio  # type: ignore[attr-defined]

from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import parse_message
from loragate.v1 import adapters_pb2, batches_pb2, fine_tuning_pb2, inference_pb2

_MAX_BYTES = 1 << 20  # of all requests of one stream
_PUBLISHED = (inference_pb2, adapters_pb2, fine_tuning_pb2, batches_pb2, health_pb2, reflection_pb2)


def _pool(files: Iterable[bytes]) -> DescriptorPool:
    """Return a pool of the public descriptors; the process's default pool contains the engine's too."""
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return pool


def _reflection_v1() -> bytes:
    """Return the description of v1, which grpcio-reflection lacks: that of v1alpha under another name."""
    text = str(FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb))
    newer = FileDescriptorProto()
    text_format.Parse(re.sub(r"(?<=reflection[./])v1alpha", "v1", text), newer)
    return newer.SerializeToString()


_SERVICES = [
    "grpc.reflection.v1.ServerReflection",
    *(service.full_name for module in _PUBLISHED for service in module.DESCRIPTOR.services_by_name.values()),
]
_FILES = [_reflection_v1(), *(module.DESCRIPTOR.serialized_pb for module in _PUBLISHED)]
_SERVICER = aio.ReflectionServicer(_SERVICES, pool=_pool(_FILES))  # type: ignore[attr-defined]


async def server_reflection_info(call: Call) -> AsyncGenerator[reflection_pb2.ServerReflectionResponse, None]:
    """Yield a response to each request. The messages of v1 are those of v1alpha under another name."""
    async for response in _SERVICER.ServerReflectionInfo(_requests(call), None):
        yield response


async def _requests(call: Call) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    async for raw in call.messages(_MAX_BYTES, call.services.config.body_pace):
        yield parse_message(reflection_pb2.ServerReflectionRequest, raw)
