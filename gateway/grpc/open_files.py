"""loragate.v1.FineTuningService: open files, to which lines can be appended."""

import io
from collections.abc import AsyncGenerator

from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import parse_message
from loragate.gateway.operations import files as file_actions
from loragate.v1 import fine_tuning_pb2 as pb


async def append(call: Call) -> AsyncGenerator[pb.FineTuningFile, None]:
    """Append all lines or none."""
    request = await call.request(lambda raw: parse_message(pb.AppendToFileRequest, raw))
    lines, once = io.BytesIO(request.data), call.once(f"POST /v1/files/{request.file_id}/append")
    use, caller, by = call.services, call.tenant, call.change()
    call.reserved.extend_to(len(request.data))
    with use.upload_limiter.acquire(caller.tenant_id):
        result = await file_actions.append(use, caller, by, request.file_id, lines, once)
    yield pb.FineTuningFile(**call.document(result))


async def close(call: Call) -> AsyncGenerator[pb.FineTuningFile, None]:
    """Close a file permanently."""
    request = await call.request(lambda raw: parse_message(pb.CloseFileRequest, raw))
    by = call.change()
    yield pb.FineTuningFile(**await file_actions.close(call.services, call.tenant, by, request.file_id))
