"""What the engine reports to a client that traces its request."""

from loragate.engine.sequence.output import Output
from loragate.engine.sequence.request import RequestTrace
from loragate.engine.server.conversions import delta_from, request_from
from loragate.v1 import engine_pb2 as pb


def test_timings_are_reported_once() -> None:
    trace = RequestTrace("00-…")
    assert trace.report(received=10.0, now=11.0) is None, "nothing was computed yet"
    trace.started_at = 10.25
    assert trace.report(received=10.0, now=11.0) == (0.25, 0.75)
    assert trace.report(received=10.0, now=12.0) is None


def test_only_the_first_delta_of_a_traced_request_has_them() -> None:
    sampling = pb.Sampling(max_tokens=2)
    traced = request_from(pb.Submit(prompt_token_ids=[1], sampling=sampling, traceparent="00-…"), 1)
    plain = request_from(pb.Submit(prompt_token_ids=[1], sampling=sampling), 1)
    assert traced.trace is not None
    assert plain.trace is None
    traced.trace.started_at = traced.received + 0.5
    first, second, other = (delta_from(Output(request, 0, token=5)) for request in (traced, traced, plain))
    assert first.timings.queue_seconds == 0.5
    assert not second.HasField("timings")
    assert not other.HasField("timings")
