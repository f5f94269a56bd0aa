"""The last check of an upload: a short request to an engine, whose logits must be finite."""

from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.publishing.probe import engine_rejection
from loragate.adapter_store.publishing.staging import StagedAdapter
from loragate.engine.client.adapter_probe import TrialFailed, try_adapter
from loragate.gateway.engine.link import EngineLink
from loragate.v1 import engine_pb2 as pb

_CONNECT_SECONDS = 5.0


class EngineProbe:
    """Runs as one of the tenant's requests (`share`), uses no cache, and is not billed."""

    def __init__(self, link: EngineLink, share: pb.Share) -> None:
        self._link = link
        self._share = share

    async def __call__(self, tenant_id: str, staged: StagedAdapter) -> None:
        """Try the staged adapter; see `adapter_store.publishing.probe.Probe`."""
        await self._link.connected(_CONNECT_SECONDS)
        manifest = self._link.base.manifest
        if manifest.base_digest != staged.base_digest:
            raise Conflict(
                "The engine no longer serves the base model against which the adapter was checked; publish it again.",
                code="base_model_mismatch",
            )
        adapter = pb.AdapterRef(tenant_id=tenant_id, digest=staged.digest)
        try:
            await try_adapter(
                self._link.fleet,
                manifest,
                adapter,
                staged.own_tokens,
                self._share,
                classifies=staged.classifier is not None,
            )
        except TrialFailed as failed:
            raise engine_rejection(failed.reason, non_finite=failed.non_finite, answered=failed.answered) from failed
