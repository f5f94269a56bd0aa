"""An engine without a model, in a process of its own: it speaks the engine's gRPC and answers at once or at a pace.

    python -m benchmarks.gateway.engine unix:/tmp/engine.sock                         whole answers at once
    python -m benchmarks.gateway.engine unix:/tmp/engine.sock --tokens-per-second 2   token by token

At a pace every running request gets one token a step, all of them in one frame, as the real engine does it.
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
    """Its answers are as long as they may be: whole, or a token every `pause` seconds."""

    def __init__(self, pause: float | None) -> None:
        self._pause = pause
        tokenizer = _tokenizer()
        self._word = tokenizer.encode(" fox", add_special_tokens=False).ids[0]
        self._manifest = _manifest(tokenizer)

    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.Manifest:
        return self._manifest

    async def Stats(self, request: pb.StatsRequest, context: object) -> pb.StatsResponse:
        return pb.StatsResponse()

    async def Session(self, frames: AsyncIterator[pb.ClientFrame], context: object) -> AsyncIterator[pb.EngineFrame]:
        left: dict[int, int] = {}  # request -> tokens to go
        news = asyncio.Event()
        reader = asyncio.create_task(_read(frames, left, news))
        try:
            while True:
                if left:
                    yield self._step(left)
                    if self._pause is not None:
                        await asyncio.sleep(self._pause)
                    continue
                news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_HEARTBEAT_SECONDS):
                        await news.wait()
                if not left:
                    yield pb.EngineFrame(heartbeat=pb.Heartbeat())
        finally:
            reader.cancel()

    def _step(self, left: dict[int, int]) -> pb.EngineFrame:
        frame = pb.EngineFrame()
        deltas = frame.step.deltas
        for request_id, missing in list(left.items()):
            now = missing if self._pause is None else 1
            left[request_id] -= now
            last = now == missing
            if last:
                del left[request_id]
            reason = pb.FINISH_REASON_LENGTH if last else pb.FINISH_REASON_UNSPECIFIED
            deltas.add(request_id=request_id, token_ids=[self._word] * now, finish_reason=reason)
        return frame


async def _read(frames: AsyncIterator[pb.ClientFrame], left: dict[int, int], news: asyncio.Event) -> None:
    async for frame in unbatch(frames):
        if frame.HasField("submit"):
            left[frame.submit.request_id] = frame.submit.sampling.max_tokens
            news.set()
        elif frame.HasField("abort"):
            left.pop(frame.abort.request_id, None)


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
    parser.add_argument("target", help="where to listen: unix:/path or host:port")
    parser.add_argument("--tokens-per-second", type=float, help="of each request; without it answers are whole")
    arguments = parser.parse_args()
    engine = ModellessEngine(1 / arguments.tokens_per_second if arguments.tokens_per_second else None)
    server = grpc.aio.server()
    pb_grpc.add_EngineServiceServicer_to_server(engine, server)
    server.add_insecure_port(arguments.target)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
