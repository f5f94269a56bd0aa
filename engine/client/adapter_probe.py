"""A short request with an adapter that checks whether the model computes finite logits with it.

It shares no cache and is scheduled like any other request.
"""

import asyncio

from loragate.engine.client.client import Engine
from loragate.engine.client.errors import EngineError, EngineRequestError
from loragate.v1 import engine_pb2 as pb

_SPREAD = 8  # tokens from all parts of the vocabulary
_GENERATED = 2  # the first comes from a prefill, the second from a decode step
_ANSWER_SECONDS = 60.0


class TrialFailed(Exception):
    """The probe failed; the text says how.

    `non_finite` means that the adapter is faulty; `answered` means that the engine responded, possibly not about the
    adapter.
    """

    def __init__(self, reason: str, *, non_finite: bool = False, answered: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.non_finite = non_finite
        self.answered = answered


async def try_adapter(
    engine: Engine,
    manifest: pb.Manifest,
    adapter: pb.AdapterRef,
    own_tokens: tuple[int, ...],
    share: pb.Share,
    *,
    classifies: bool = False,
) -> None:
    """Probe an adapter; `own_tokens` are its invocation tokens. One that `classifies` has a head for labels, and
    generates nothing. Raise TrialFailed."""
    submit = pb.Submit(
        prompt_token_ids=probe_prompt(manifest, own_tokens),
        adapter=adapter,
        sampling=pb.Sampling(max_tokens=_GENERATED, ignore_eos=True),
        share=share,
        pooling=pb.POOLING_CLASSIFY if classifies else pb.POOLING_UNSPECIFIED,
    )
    try:
        async with asyncio.timeout(_ANSWER_SECONDS), engine.generate(submit) as deltas:
            async for _ in deltas:
                pass
    except TimeoutError:
        raise TrialFailed("the engine is overloaded") from None
    except EngineRequestError as error:
        non_finite, had_time = error.code == pb.ERROR_CODE_NON_FINITE, error.code != pb.ERROR_CODE_OVERLOADED
        raise TrialFailed(error.message, non_finite=non_finite, answered=had_time) from error
    except EngineError as error:
        raise TrialFailed("the connection to the engine was lost") from error


def probe_prompt(manifest: pb.Manifest, own_tokens: tuple[int, ...]) -> list[int]:
    """Return a prompt of tokens of all kinds that ends with the adapter's invocation tokens."""
    spread = [manifest.vocab_size * (2 * step + 1) // (2 * _SPREAD) for step in range(_SPREAD)]
    room = manifest.max_model_len - _GENERATED
    return [*spread, *own_tokens][-room:]
