"""The base of what prepares requests: their target, and the limits that large ones are charged first."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.usage.service_quality import Reason
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.generation.request import Target
from loragate.gateway.generation.resolver import Resolver
from loragate.gateway.generation.tokenize import PromptTokenizer
from loragate.gateway.limits.errors import RateLimited
from loragate.gateway.limits.lease import Lease
from loragate.gateway.limits.limiter import Limiter
from loragate.gateway.text.base_model import BaseModel

# Tokenizing a text of this size takes some 50 ms, so the limits are charged before, by an estimate.
_CHARGED_FIRST_CHARACTERS = 64 << 10
CHARACTERS_PER_CHARGED_TOKEN = 8  # few texts have more


class Preparer:
    """The base of what prepares requests."""

    def __init__(
        self,
        *,
        link: EngineLink,
        resolver: Resolver,
        tokenizer: PromptTokenizer,
        limiter: Limiter,
        on_rejection: Callable[[str, Reason], None],
        config: GatewayConfig,
        batches: bool = False,
    ) -> None:
        self._link = link
        self._resolver = resolver
        self._tokenizer = tokenizer
        self._limiter = limiter
        self._on_rejection = on_rejection
        self._config = config
        self._batches = batches

    async def _reserve(self, caller: TenantPrincipal, target: Target, tokens: int) -> Lease:
        try:
            return await self._limiter.admit(caller, target.adapter, tokens)
        except RateLimited:
            self._on_rejection(caller.tenant_id, Reason.LIMIT)
            raise

    async def _target(self, caller: TenantPrincipal, base: BaseModel, model: str, user: str | None) -> Target:
        target = await self._resolver.resolve(caller, base, model, user)
        return replace(target, cache_user=user) if self._config.prefix_cache_by_user else target

    async def _generating_target(
        self, caller: TenantPrincipal, base: BaseModel, model: str, user: str | None
    ) -> Target:
        """Return the target of a request for text. Raise InvalidRequest for a classifier."""
        target = await self._target(caller, base, model, user)
        if target.classifier is not None:
            raise InvalidRequest(
                f"The model '{model}' is a classifier ({target.classifier.task}): it has a head for labels, and "
                "generates no text. Use /v1/classify.",
                param="model",
                code="model_is_a_classifier",
            )
        return target

    async def _charge_first(
        self, caller: TenantPrincipal, target: Target, characters: int, completion_tokens: int
    ) -> Lease | None:
        """Charge the limits for a large text before it is tokenized; return None for others, which are charged for
        their tokens when they are admitted. Raise RateLimited."""
        if self._batches:
            return None
        if characters < _CHARGED_FIRST_CHARACTERS:
            return None
        tokens = characters // CHARACTERS_PER_CHARGED_TOKEN + min(completion_tokens, self._link.base.max_model_len)
        return await self._reserve(caller, target, tokens)


class Charge:
    """What a request that generates nothing is charged: its `tokens` once the block ends, none if it fails."""

    def __init__(self, lease: Lease, headers: Mapping[str, str]) -> None:
        self.headers = {**headers, **lease.headers}
        self.tokens = 0
        self._lease = lease

    def __enter__(self) -> "Charge":
        return self

    def __exit__(self, *_: object) -> None:
        if self.tokens > self._lease.reserved:
            self._lease.extend(self.tokens)
        self._lease.settle(self.tokens)


@contextmanager
def settled_on_error(lease: Lease | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if lease is not None:
            lease.settle(0)
        raise


def out_of_range(param: str, words: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{param}': {words}.", param=param, code="invalid_value")
