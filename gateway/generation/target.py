"""Which weights answer: the base model's alone, or an adapter version's on top."""

from dataclasses import dataclass

from loragate.adapter_store.adapters.adapter import ResolvedAdapter
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class Target:
    """Resolved once; a request keeps its version until it ends, whatever happens to the alias."""

    tenant_id: str
    adapter: ResolvedAdapter | None

    @property
    def headers(self) -> dict[str, str]:
        """`x-loragate-adapter`, absent where the base model answers alone."""
        if self.adapter is None:
            return {}
        adapter = self.adapter
        return {"x-loragate-adapter": f"{adapter.name}:{adapter.version}@{adapter.digest}"}

    @property
    def reference(self) -> pb.AdapterRef | None:
        """The adapter as the engine asks for it."""
        if self.adapter is None:
            return None
        return pb.AdapterRef(tenant_id=self.tenant_id, digest=self.adapter.digest)
