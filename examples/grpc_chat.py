"""Chats over gRPC and prints the response as it is generated; uploads an adapter first, if one is given.

    python examples/grpc_chat.py 127.0.0.1:50051 french "What is the capital of France?"
    python examples/grpc_chat.py 127.0.0.1:50051 my-adapter "Hello!" --upload outputs/my-adapter

The key is read from LORAGATE_API_KEY. Needs `pip install grpcio grpcio-status` and loragate, for its stubs.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_status import rpc_status

from loragate.v1.adapters_pb2 import UploadRequest
from loragate.v1.adapters_pb2_grpc import AdapterServiceStub
from loragate.v1.inference_pb2 import ChatRequest
from loragate.v1.inference_pb2_grpc import InferenceServiceStub

PIECE_BYTES = 1 << 20
DEADLINE_SECONDS = 120


def upload(channel: grpc.Channel, credentials: tuple[tuple[str, str]], name: str, folder: Path) -> None:
    """Upload PEFT's two files in pieces: an adapter may be larger than memory."""

    def pieces() -> Iterator[UploadRequest]:
        yield UploadRequest(name=name, adapter_config=(folder / "adapter_config.json").read_bytes())
        with (folder / "adapter_model.safetensors").open("rb") as tensors:
            while piece := tensors.read(PIECE_BYTES):
                yield UploadRequest(adapter_model=piece)

    version = AdapterServiceStub(channel).Upload(pieces(), metadata=credentials)
    print(f"uploaded {version.name}:{version.version} ({version.digest})", file=sys.stderr)


def chat(channel: grpc.Channel, credentials: tuple[tuple[str, str]], model: str, question: str) -> None:
    """Print the response as it is generated, then its token count."""
    request = ChatRequest(model=model, messages=[{"role": "user", "content": question}])
    call = InferenceServiceStub(channel).ChatStream(request, metadata=credentials, timeout=DEADLINE_SECONDS)
    for chunk in call:
        print(chunk.text, end="", flush=True)
        if chunk.HasField("usage"):
            print(f"\n{chunk.usage.total_tokens} tokens", file=sys.stderr)
    answered_by = dict(call.initial_metadata()).get("x-loragate-adapter", "the base model")
    print(f"answered by {answered_by}", file=sys.stderr)


def explain(error: grpc.RpcError) -> str:
    """Describe an error: `code` and `param` as in the REST API, and when to retry."""
    text = f"{error.code().name}: {error.details()}"
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info, retry = ErrorInfo(), RetryInfo()
        if detail.Unpack(info):
            text += f"\n  code {info.metadata['code']}, field {info.metadata.get('param', '-')}"
        elif detail.Unpack(retry):
            text += f"\n  retry in {retry.retry_delay.ToMilliseconds()} ms"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Chat over gRPC.")
    parser.add_argument("target", help="host:port")
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("--upload", type=Path, help="a folder that PEFT saved, uploaded as `model` first")
    arguments = parser.parse_args()
    credentials = (("authorization", f"Bearer {os.environ['LORAGATE_API_KEY']}"),)
    try:
        with grpc.insecure_channel(arguments.target) as channel:
            if arguments.upload:
                upload(channel, credentials, arguments.model, arguments.upload)
            chat(channel, credentials, arguments.model, arguments.question)
    except grpc.RpcError as error:
        sys.exit(explain(error))


if __name__ == "__main__":
    main()
