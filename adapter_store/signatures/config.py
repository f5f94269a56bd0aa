"""The settings of signed adapters."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

OUR_TRAINING = "loragate"
"""The signer that is recorded for adapters that this installation's fine-tune workers have trained."""

MAX_SIGNERS = 64

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Require(StrEnum):
    """What an upload needs to be published, unless its tenant has signers of its own."""

    NEVER = "never"  # signatures are ignored
    IF_PRESENT = "if_present"  # a signature that is sent must be valid
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class SignerConfig:
    """A signer: a PEM file with its public key or keys, or one with the authority that issues its certificates.

    `subject` is then the subject of these certificates, in the form of RFC 4514 ("CN=release,O=Acme").
    """

    name: str
    public_key: Path | None = None
    certificate: Path | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a name has 1 to 64 of a-z 0-9 . _ -, got {self.name!r}")
        if self.name == OUR_TRAINING:
            raise ValueError(f"'{OUR_TRAINING}' is the name for adapters trained here; choose another")
        if (self.public_key is None) == (self.certificate is None):
            raise ValueError(f"give '{self.name}' either a public_key or a certificate")
        if (self.certificate is None) != (self.subject is None):
            raise ValueError(f"'{self.name}' needs both a certificate and a subject, or neither")


@dataclass(frozen=True, slots=True)
class SignatureConfig:
    """`require` says what is published, `signers` whose signatures count. With `trust_fine_tuning`, adapters that
    fine-tuning jobs have trained count as signed."""

    require: Require = Require.NEVER
    signers: tuple[SignerConfig, ...] = ()
    trust_fine_tuning: bool = False

    def __post_init__(self) -> None:
        names = [signer.name for signer in self.signers]
        if len(names) > MAX_SIGNERS:
            raise ValueError(f"signatures.signers has more than {MAX_SIGNERS} signers")
        if len(set(names)) < len(names):
            raise ValueError(f"signatures.signers has a name twice: {', '.join(names)}")
        if self.require is not Require.NEVER and not names and not self.trust_fine_tuning:
            raise ValueError(f"signatures.require is '{self.require}', which needs at least one of signatures.signers")
