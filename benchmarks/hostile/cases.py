"""The cases: an exploit, what the quiet windows have in its place, and what it harms beside latency."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmarks.hostile import exploits, harm
from benchmarks.hostile.attacker import Attack
from benchmarks.hostile.server import Server

Exploit = Callable[[Attack], None]


@dataclass(frozen=True)
class Case:
    """One exploit. `quiet` runs in the other windows, `lead_seconds` pass before the window begins.

    `large`: the guest's bodies have 100 kB, which the gateway parses in threads. `once`: it is measured in one round,
    because its harm takes long to see.
    """

    exploit: Exploit
    quiet: Exploit | None = None
    harm: Callable[[Server, dict[str, Any]], AbstractContextManager[None]] = harm.memory
    lead_seconds: float = 1.0
    large: bool = False
    once: bool = False
    attacker: str = "attacker"  # the tenant

    @property
    def name(self) -> str:
        return self.exploit.__name__


CASES = (
    Case(exploits.long_prompts),
    Case(exploits.longest_accepted_prompts),
    Case(exploits.invalid_lines, large=True),
    Case(exploits.valid_lines, large=True),
    Case(exploits.pattern_in_training, harm=harm.training, lead_seconds=4.0, once=True),
    Case(exploits.announced_uploads, harm=harm.disk),
    Case(exploits.quota_evasions, harm=harm.storage, attacker="hoarder"),
    Case(exploits.repeated_parts),
    Case(exploits.costly_grammars),
    Case(exploits.unfinished_bodies, lead_seconds=3.0),
    Case(exploits.panel_before_sign_in, harm=harm.panel),
    Case(exploits.slow_readers, quiet=exploits.quick_readers),
)
