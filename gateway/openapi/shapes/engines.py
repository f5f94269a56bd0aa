"""Answers about engines."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.common import Count, Digest, Moment, Page, Residency


class Running(TypedDict):
    """Sequences in the batch."""

    running: Count


class Waiting(TypedDict):
    """Requests that wait, and those of them whose adapter is not there yet."""

    waiting: Count
    waiting_for_adapter: Count


class Room(TypedDict):
    """How much of what there is is used."""

    used: Count
    total: Count


class AdapterBytes(TypedDict):
    """Where adapters are kept."""

    device: Room
    host: Room
    disk: Room


class StepSeconds(TypedDict):
    """Of the last steps."""

    steps: Count
    p50: float
    p90: float
    p99: float


class NamedVersion(TypedDict):
    """A name that these weights have."""

    name: str
    version: Count


class OfAdapter(TypedDict):
    """`id` is opaque; without an adapter the base model alone is meant."""

    id: str
    tenant_id: str | None
    digest: str | None
    versions: list[NamedVersion]


class Resident(OfAdapter):
    """An adapter on the device."""

    slot: int
    running: Count
    pinned: bool


class TenantQueue(TypedDict):
    """Completions of one tenant, in the batch and waiting; `name` is null where it is not known."""

    tenant_id: str
    name: str | None
    running: Count
    waiting: Count


class Engine(TypedDict):
    """What it serves and is doing; null where nothing is known."""

    id: str
    object: Literal["engine"]
    state: Literal["ready", "unreachable"]
    model: str | None
    base_digest: Digest | None
    device: str | None
    dtype: str | None
    max_model_len: Count | None
    notes: list[str]
    started_at: Moment | None
    batch: Running | None
    queue: Waiting | None
    tenants: Annotated[list[TenantQueue], Field(description="Those with the longest queues first, at most 256.")]
    kv_blocks: Room | None
    adapter_slots: Room | None
    adapter_bytes: AdapterBytes | None
    step_seconds: StepSeconds | None
    residents: list[Resident]


class EngineList(Page):
    """All engines."""

    data: list[Engine]


class EngineAdapter(OfAdapter):
    """What one adapter has served since the engine's start."""

    object: Literal["engine.adapter"]
    requests: Count
    prompt_tokens: Count
    generated_tokens: Count
    mean_queue_seconds: float | None
    mean_first_token_seconds: float | None
    loads: Count
    residency: Residency | None


class EngineAdapterList(Page):
    """By opaque id."""

    data: list[EngineAdapter]
