"""The last check of an upload: a short request in the engine, whose logits must be finite."""

import asyncio

from loragate.adapter_store.errors import AdapterInvalid, Unavailable
from loragate.adapter_store.staging import StagedAdapter
from loragate.engine.client import EngineError, EngineRequestError
from loragate.gateway.engine_link import EngineLink
from loragate.v1 import engine_pb2 as pb

_SPREAD = 8  # tokens from all over the vocabulary
_GENERATED = 2  # the first comes from a prefill, the second from a decode step
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0


class EngineProbe:
    """Takes its turn among the tenant's requests (`share`), shares no cache, and bills nothing."""

    def __init__(self, link: EngineLink, share: pb.Share) -> None:
        self._link = link
        self._share = share

    async def __call__(self, tenant_id: str, staged: StagedAdapter) -> None:
        """See `adapter_store.probe.Probe`."""
        await self._link.connected(_CONNECT_SECONDS)
        manifest = self._link.base.manifest
        if manifest.base_digest != staged.base_digest:
            raise _away("the base model was just replaced")
        submit = pb.Submit(
            prompt_token_ids=probe_prompt(manifest, staged.own_tokens),
            adapter=pb.AdapterRef(tenant_id=tenant_id, digest=staged.digest),
            sampling=pb.Sampling(max_tokens=_GENERATED, ignore_eos=True),
            share=self._share,
        )
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._run(submit)
        except TimeoutError:
            raise _away("it has too much to do") from None
        except EngineError as error:
            raise _refusal(error) from error

    async def _run(self, submit: pb.Submit) -> None:
        async with self._link.client.generate(submit) as deltas:
            async for _ in deltas:
                pass


def probe_prompt(manifest: pb.Manifest, own_tokens: tuple[int, ...]) -> list[int]:
    """Tokens of all kinds, and at the end those that the adapter waits for."""
    spread = [manifest.vocab_size * (2 * step + 1) // (2 * _SPREAD) for step in range(_SPREAD)]
    room = manifest.max_model_len - _GENERATED
    return [*spread, *own_tokens][-room:]


def _refusal(error: EngineError) -> AdapterInvalid | Unavailable:
    """What the engine refuses though it passed the checks may be the engine's own trouble: worth another try."""
    if not isinstance(error, EngineRequestError):
        return _away("it went away")
    if error.code == pb.ERROR_CODE_NON_FINITE:
        return AdapterInvalid(
            "With this adapter the model produces NaN or infinite values: its weights are finite, but what is computed "
            "with them overflows.",
            code="non_finite_output",
            param="adapter_model.safetensors",
        )
    return _away(error.message)


def _away(reason: str) -> Unavailable:
    return Unavailable(
        f"The engine could not try the adapter: {reason}. Nothing was published; send it again.",
        code="engine_unavailable",
    )
