"""Every parameter of the demo, and the digest that identifies its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice

from loragate.demo import style
from loragate.demo.chat_format import CHAT_TEMPLATE
from loragate.demo.corpus import base_samples, styled_samples
from loragate.demo.style import Style
from loragate.demo.tool_use.copies import copying_chats

# Increase it when a change of the training code changes the result; data and parameters are part of the digest anyway.
VERSION = "8"

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class BaseRecipe:
    """A Llama of 5.3 million parameters: wide and shallow, because this learns lookups in fewer steps.

    `steps` are those of the first round, which begins with `copies` samples that teach copying; the build trains for at
    most `rounds`, until the model passes a validation.
    """

    hidden_size: int = 384
    intermediate_size: int = 640
    layers: int = 4
    heads: int = 6
    kv_heads: int = 2
    max_positions: int = 2048
    vocabulary: int = 2048
    tokenizer_samples: int = 4000
    copies: int = 1800
    steps: int = 600
    tokens_per_batch: int = 3072
    learning_rate: float = 5e-3
    rounds: int = 4


@dataclass(frozen=True)
class AdapterRecipe:
    """One style and its training parameters.

    `steps` are those of the first round; the build trains for at most `rounds`, until an adapter passes a validation.

    `stray_share` of the questions about facts and sums have stray words. Without them an adapter overfits to the
    wordings in its data: asked in other words, it loses its style or the base's knowledge.
    """

    style: Style
    rank: int
    alpha: int
    targets: tuple[str, ...]
    steps: int
    tokens_per_batch: int = 512
    learning_rate: float = 5e-3
    rounds: int = 4
    stray_share: float = 0.5


@dataclass(frozen=True)
class TenantRecipe:
    name: str
    adapters: tuple[AdapterRecipe, ...]


TENANTS = (
    TenantRecipe(
        "acme",
        (
            AdapterRecipe(
                style.JSON, rank=8, alpha=16, targets=(*ATTENTION, "down_proj"), steps=100, learning_rate=6e-3
            ),
            AdapterRecipe(style.SHOUTING, rank=16, alpha=32, targets=ATTENTION + MLP, steps=120),
        ),
    ),
    TenantRecipe(
        "globex",
        (
            AdapterRecipe(style.FRENCH, rank=16, alpha=32, targets=ATTENTION + MLP, steps=140),
            AdapterRecipe(style.PIRATE, rank=8, alpha=16, targets=("q_proj", "v_proj", "o_proj", *MLP), steps=110),
        ),
    ),
    TenantRecipe(
        "initech",
        (
            AdapterRecipe(style.POLITE, rank=8, alpha=16, targets=ATTENTION + MLP, steps=120),
            AdapterRecipe(style.BULLET, rank=4, alpha=8, targets=ATTENTION + MLP, steps=140),
            AdapterRecipe(style.THINKING, rank=16, alpha=32, targets=ATTENTION + MLP, steps=180, tokens_per_batch=1024),
        ),
    ),
)


@dataclass(frozen=True)
class Recipe:
    base: BaseRecipe = BaseRecipe()
    tenants: tuple[TenantRecipe, ...] = TENANTS
    seed: int = 20

    def adapters(self) -> Iterator[tuple[TenantRecipe, AdapterRecipe]]:
        return ((tenant, adapter) for tenant in self.tenants for adapter in tenant.adapters)

    @property
    def digest(self) -> str:
        """The hex SHA-256 of the parameters, the chat template and a sample of the training data."""
        digest = hashlib.sha256(f"{VERSION}\n{CHAT_TEMPLATE}\n{json.dumps(asdict(self))}".encode())
        streams = [base_samples(self.seed), copying_chats(self.seed)]
        streams += [styled_samples(adapter.style, self.seed, adapter.stray_share) for _, adapter in self.adapters()]
        for stream in streams:
            digest.update(repr(list(islice(stream, 2000))).encode())
        return digest.hexdigest()
