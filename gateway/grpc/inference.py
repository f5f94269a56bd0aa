"""loragate.v1.InferenceService: completions and chat."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial

from loragate.gateway.calls.call import TextCall
from loragate.gateway.calls.inference_request import Endpoint
from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import chat_request, completion_request
from loragate.gateway.grpc.responses import chat_chunk, chat_response, generate_response
from loragate.gateway.objects.inference.chat import chat_chunks, chat_completion
from loragate.gateway.objects.inference.completion_head import CompletionHead, new_completion_head, written
from loragate.gateway.objects.inference.completions import Echoes, echoes_of, text_chunks, text_completion
from loragate.v1 import inference_pb2 as pb


async def generate(call: Call) -> AsyncGenerator[pb.GenerateResponse, None]:
    """Complete each prompt; return the whole response."""
    generation, head, echoes = await _completion(call)
    async with _admitted(call, generation, "completions") as admitted:
        completions = await admitted.complete()
        response = await written(generation, lambda: generate_response(text_completion(head, completions, echoes)))
    yield response


async def generate_stream(call: Call) -> AsyncGenerator[pb.GenerateResponse, None]:
    """Complete each prompt; yield the response in chunks."""
    generation, head, echoes = await _completion(call, stream=True)
    async with (
        _admitted(call, generation, "completions") as admitted,
        aclosing(text_chunks(head, admitted.stream(), echoes, include_usage=True)) as chunks,
    ):
        async for chunk in chunks:
            yield generate_response(chunk)


async def chat(call: Call) -> AsyncGenerator[pb.ChatResponse, None]:
    """Return the assistant's next message as a whole."""
    generation, head = await _chat(call)
    async with _admitted(call, generation, "chat") as admitted:
        completions = await admitted.complete()
        response = await written(generation, lambda: chat_response(chat_completion(head, completions)))
    yield response


async def chat_stream(call: Call) -> AsyncGenerator[pb.ChatChunk, None]:
    """Yield the assistant's next message in chunks."""
    generation, head = await _chat(call, stream=True)
    async with (
        _admitted(call, generation, "chat") as admitted,
        aclosing(chat_chunks(head, admitted.stream(), include_usage=True)) as chunks,
    ):
        async for chunk in chunks:
            yield chat_chunk(chunk)


async def _completion(call: Call, *, stream: bool = False) -> tuple[GenerationRequest, CompletionHead, Echoes]:
    body = await call.request(partial(completion_request, stream=stream))
    generation = await call.services.preparer.completion(call.tenant, body)
    return generation, new_completion_head("cmpl", body.model, generation), echoes_of(body, generation)


async def _chat(call: Call, *, stream: bool = False) -> tuple[GenerationRequest, CompletionHead]:
    body = await call.request(partial(chat_request, stream=stream))
    generation = await call.services.preparer.chat(call.tenant, body)
    return generation, new_completion_head("chatcmpl", body.model, generation)


@asynccontextmanager
async def _admitted(call: Call, generation: GenerationRequest, endpoint: Endpoint) -> AsyncIterator[TextCall]:
    """Admit the request within the caller's limits; what is left of them is sent with the response."""
    admission = call.services.admission.admit(call.tenant, generation, endpoint=endpoint, request_id=call.request_id)
    async with admission as admitted:
        call.headers |= admitted.headers
        yield admitted
