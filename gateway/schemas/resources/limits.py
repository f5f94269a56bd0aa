"""Limits in request bodies. Null means unlimited; what is absent stays unchanged."""

from typing import Annotated

from pydantic import Field, model_serializer

from loragate.adapter_store.limits import MAX_LIMIT
from loragate.prompts.bodies import Body

Amount = Annotated[int, Field(ge=0, le=MAX_LIMIT)]


class LimitsBody(Body):
    """Limits of a key or an adapter."""

    requests_per_minute: Amount | None = None
    tokens_per_minute: Amount | None = None
    max_concurrency: Amount | None = None
    tokens_per_day: Amount | None = None
    tokens_per_month: Amount | None = None

    @model_serializer
    def _as_sent(self) -> dict[str, int | None]:
        """Return only the fields that were sent: null and absent differ, also in the JSON that identifies a request."""
        return self.changes

    @property
    def changes(self) -> dict[str, int | None]:
        """The fields that the body contains."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class TenantLimitsBody(LimitsBody):
    """Limits of a tenant."""

    max_adapters: Amount | None = None
    max_storage_bytes: Amount | None = None
    max_objects: Amount | None = None
    max_adapter_rank: Amount | None = None
    max_unfinished_jobs: Amount | None = None
    max_job_training_tokens: Amount | None = None
    max_job_training_seconds: Amount | None = None
    training_tokens_per_minute: Amount | None = None
    training_tokens_per_day: Amount | None = None
    training_tokens_per_month: Amount | None = None
    training_seconds_per_day: Amount | None = None
    training_seconds_per_month: Amount | None = None
    max_unfinished_batches: Amount | None = None
    max_batch_lines: Amount | None = None
    max_batch_bytes: Amount | None = None
    batch_tokens_per_day: Amount | None = None
    max_training_sessions: Amount | None = None
    max_training_runs: Amount | None = None
    max_stored_responses: Amount | None = None


class LimitsPatch(Body):
    """Body of a PATCH that changes only limits."""

    limits: LimitsBody = Field(default_factory=LimitsBody)
