"""Frames are sent in order; frames that waited together are sent together."""

import asyncio
from collections.abc import AsyncIterator

from loragate.engine.client.frames import FrameQueue, unbatch
from loragate.v1 import engine_pb2 as pb


def submit(request_id: int) -> pb.ClientFrame:
    return pb.ClientFrame(submit=pb.Submit(request_id=request_id))


def part(size: int) -> pb.ClientFrame:
    return pb.ClientFrame(adapter_part=pb.AdapterPart(tensors=b"x" * size))


async def sent(outbox: FrameQueue, messages: int) -> list[pb.ClientFrame]:
    return [await outbox.next() for _ in range(messages)]


async def unpacked(messages: list[pb.ClientFrame]) -> list[pb.ClientFrame]:
    async def stream() -> AsyncIterator[pb.ClientFrame]:
        for message in messages:
            yield message

    return [frame async for frame in unbatch(stream())]


async def test_waiting_frames_share_one_message() -> None:
    outbox = FrameQueue()
    for request_id in range(10):
        outbox.put(submit(request_id))
    outbox.put(pb.ClientFrame(abort=pb.Abort(request_id=3)))
    (message,) = await sent(outbox, 1)
    frames = await unpacked([message])
    assert [frame.submit.request_id for frame in frames[:10]] == list(range(10))
    assert frames[10].abort.request_id == 3


async def test_a_message_has_a_maximum_size() -> None:
    outbox = FrameQueue()
    for request_id in range(200):
        outbox.put(submit(request_id))
    messages = await sent(outbox, 4)
    assert [1 + len(message.more) for message in messages] == [64, 64, 64, 8]
    assert [frame.submit.request_id for frame in await unpacked(messages)] == list(range(200))


async def test_the_parts_of_an_adapter_are_sent_alone_and_in_order() -> None:
    outbox = FrameQueue()
    for frame in (submit(1), part(1), part(2), submit(2), submit(3)):
        outbox.put(frame)
    messages = await sent(outbox, 4)
    assert [1 + len(message.more) for message in messages] == [1, 1, 1, 2]
    kinds = [frame.WhichOneof("kind") for frame in await unpacked(messages)]
    assert kinds == ["submit", "adapter_part", "adapter_part", "submit", "submit"]


async def test_a_waiting_reader_gets_the_next_frame() -> None:
    outbox = FrameQueue()
    waiting = asyncio.create_task(outbox.next())
    await asyncio.sleep(0)
    outbox.put(submit(7))
    assert (await waiting).submit.request_id == 7
