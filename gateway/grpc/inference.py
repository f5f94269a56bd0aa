"""loragate.v1.InferenceService."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from loragate.gateway.calls.admission import admit
from loragate.gateway.generation.preparing import prepare_chat, prepare_completion
from loragate.gateway.grpc.answers import chat_chunk, chat_response, generate_response
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import chat_request, completion_request
from loragate.gateway.wire.answer import new_answer
from loragate.gateway.wire.chat import chat_chunks, chat_completion
from loragate.gateway.wire.completions import echoes_of, text_chunks, text_completion
from loragate.v1 import inference_pb2 as pb


async def generate(call: Call) -> AsyncGenerator[pb.GenerateResponse, None]:
    """How each prompt goes on, whole."""
    body = await call.request(completion_request)
    generation = await prepare_completion(call.services, call.tenant, body)
    answer, echoes = new_answer("cmpl", body.model, generation), echoes_of(body, generation)
    async with admit(
        call.services, call.tenant, generation, endpoint="completions", request_id=call.request_id
    ) as admitted:
        call.headers |= admitted.headers
        response = generate_response(text_completion(answer, await admitted.complete(), echoes))
    yield response


async def generate_stream(call: Call) -> AsyncGenerator[pb.GenerateResponse, None]:
    """The same in chunks."""
    body = await call.request(completion_request)
    generation = await prepare_completion(call.services, call.tenant, body)
    answer, echoes = new_answer("cmpl", body.model, generation), echoes_of(body, generation)
    async with admit(
        call.services, call.tenant, generation, endpoint="completions", request_id=call.request_id
    ) as admitted:
        call.headers |= admitted.headers
        async with aclosing(text_chunks(answer, admitted.stream(), echoes, include_usage=True)) as chunks:
            async for chunk in chunks:
                yield generate_response(chunk)


async def chat(call: Call) -> AsyncGenerator[pb.ChatResponse, None]:
    """The assistant's next message, whole."""
    body = await call.request(chat_request)
    generation = await prepare_chat(call.services, call.tenant, body)
    answer = new_answer("chatcmpl", body.model, generation)
    async with admit(call.services, call.tenant, generation, endpoint="chat", request_id=call.request_id) as admitted:
        call.headers |= admitted.headers
        response = chat_response(chat_completion(answer, await admitted.complete()))
    yield response


async def chat_stream(call: Call) -> AsyncGenerator[pb.ChatChunk, None]:
    """The same in chunks."""
    body = await call.request(chat_request)
    generation = await prepare_chat(call.services, call.tenant, body)
    answer = new_answer("chatcmpl", body.model, generation)
    async with admit(call.services, call.tenant, generation, endpoint="chat", request_id=call.request_id) as admitted:
        call.headers |= admitted.headers
        async with aclosing(chat_chunks(answer, admitted.stream(), include_usage=True)) as chunks:
            async for chunk in chunks:
                yield chat_chunk(chunk)
