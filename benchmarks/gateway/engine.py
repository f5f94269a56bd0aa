"""An engine process without a model: it implements the engine's gRPC service and responds at once or at a fixed rate.

    python -m benchmarks.gateway.engine unix:/tmp/engine.sock                         all tokens at once
    python -m benchmarks.gateway.engine unix:/tmp/engine.sock --tokens-per-second 2   one token at a time
    python -m benchmarks.gateway.engine unix:/tmp/engine.sock --tokens-per-second 50 --batch 8   of 8 requests

At a fixed rate, each step sends one token of every running request in one frame, as the real engine does. Beyond the
batch, requests wait.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc.aio
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from loragate.engine.client.frames import unbatch
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc

MODEL = "bench/base"
HIDDEN = 16
PROJECTIONS = ("q_proj", "v_proj")

_HEARTBEAT_SECONDS = 0.5
_CORPUS = ("The quick brown fox jumps over the lazy dog.", "What is the capital of France? It is Paris, of course.")
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class ModellessEngine(pb_grpc.EngineServiceServicer):
    """Generates `max_tokens` tokens for each request: all at once, or one every `pause` seconds."""

    def __init__(self, pause: float | None, batch: int | None = None) -> None:
        self._pause = pause
        self._batch = batch
        self._held: list[pb.AdapterRef] = []
        tokenizer = _tokenizer()
        self._word = tokenizer.encode(" fox", add_special_tokens=False).ids[0]
        self._manifest = _manifest(tokenizer)

    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.Manifest:
        return self._manifest

    async def Stats(self, request: pb.StatsRequest, context: object) -> pb.StatsResponse:
        return pb.StatsResponse()

    async def Inventory(self, request: pb.InventoryRequest, context: object) -> pb.InventoryResponse:
        return pb.InventoryResponse(held=[pb.Held(adapter=each, tier=pb.TIER_DISK) for each in self._held])

    async def Session(self, frames: AsyncIterator[pb.ClientFrame], context: object) -> AsyncIterator[pb.EngineFrame]:
        remaining: dict[int, int] = {}  # request -> remaining tokens
        submitted = asyncio.Event()
        reader = asyncio.create_task(self._read(frames, remaining, submitted))
        try:
            while True:
                if remaining:
                    yield self._step(remaining)
                    if self._pause is not None:
                        await asyncio.sleep(self._pause)
                    continue
                submitted.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_HEARTBEAT_SECONDS):
                        await submitted.wait()
                if not remaining:
                    yield pb.EngineFrame(heartbeat=pb.Heartbeat())
        finally:
            reader.cancel()

    def _step(self, remaining: dict[int, int]) -> pb.EngineFrame:
        frame = pb.EngineFrame()
        deltas = frame.step.deltas
        for request_id, needed in list(remaining.items())[: self._batch]:
            now = needed if self._pause is None else 1
            remaining[request_id] -= now
            last = now == needed
            if last:
                del remaining[request_id]
            reason = pb.FINISH_REASON_LENGTH if last else pb.FINISH_REASON_UNSPECIFIED
            deltas.add(request_id=request_id, token_ids=[self._word] * now, finish_reason=reason)
        return frame

    async def _read(
        self, frames: AsyncIterator[pb.ClientFrame], remaining: dict[int, int], submitted: asyncio.Event
    ) -> None:
        async for frame in unbatch(frames):
            if frame.HasField("submit"):
                remaining[frame.submit.request_id] = frame.submit.sampling.max_tokens
                submitted.set()
            elif frame.HasField("abort"):
                remaining.pop(frame.abort.request_id, None)
            elif frame.HasField("prefetch"):
                self._held = list(frame.prefetch.adapters)


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def _manifest(tokenizer: Tokenizer) -> pb.Manifest:
    modules = [
        pb.TargetModule(
            name=f"model.layers.0.self_attn.{name}",
            kind=pb.MODULE_KIND_LINEAR,
            in_features=HIDDEN,
            out_features=HIDDEN,
            servable=True,
        )
        for name in PROJECTIONS
    ]
    return pb.Manifest(
        model_id=MODEL,
        base_digest="sha256:" + "be" * 32,
        architecture="LlamaForCausalLM",
        model_type="llama",
        num_layers=1,
        vocab_size=tokenizer.get_vocab_size(),
        max_model_len=8192,
        modules=modules,
        tokenizer_json=tokenizer.to_str().encode(),
        chat_template=_CHAT_TEMPLATE,
        special_tokens={"bos_token": "<s>", "eos_token": "</s>"},
        eos_token_ids=[tokenizer.token_to_id("</s>")],
        max_lora_rank=64,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="listening address: unix:/path or host:port")
    parser.add_argument("--tokens-per-second", type=float, help="rate of each request; default: all tokens at once")
    parser.add_argument("--batch", type=int, help="requests that are computed at a time; default: all")
    arguments = parser.parse_args()
    engine = ModellessEngine(1 / arguments.tokens_per_second if arguments.tokens_per_second else None, arguments.batch)
    server = grpc.aio.server()
    pb_grpc.add_EngineServiceServicer_to_server(engine, server)
    server.add_insecure_port(arguments.target)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
