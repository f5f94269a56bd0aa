"""Signers, known by a public key or by the certificates of an authority."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from loragate.adapter_store.signatures.bundle import Bundle
from loragate.adapter_store.signatures.config import SignerConfig
from loragate.peft_format.errors import clipped

_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL)
_HASHES: dict[str, type[HashAlgorithm]] = {"secp256r1": SHA256, "secp384r1": SHA384, "secp521r1": SHA512}
_MALFORMED = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)

Key = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
T = TypeVar("T")


def _check_authority(policy: Policy, certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("its key may not sign certificates")


# The rules for TLS, less what private authorities and certificates for signatures need not have.
_AUTHORITIES = ExtensionPolicy.webpki_defaults_ca().may_be_present(
    x509.KeyUsage, Criticality.AGNOSTIC, _check_authority
)
_CERTIFICATES = (
    ExtensionPolicy.webpki_defaults_ee()
    .may_be_present(x509.SubjectAlternativeName, Criticality.AGNOSTIC, None)
    .may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, None)
    .may_be_present(x509.AuthorityKeyIdentifier, Criticality.AGNOSTIC, None)
)


class Signer(Protocol):
    """A party that may sign adapters."""

    def rejection(self, bundle: Bundle, now: datetime) -> str | None:
        """Return the reason why the bundle is not this signer's; None: it is."""
        ...


@dataclass(frozen=True)
class KeySigner:
    """A signer with one of these keys, of which the others are previous or next ones."""

    keys: tuple[Key, ...]

    def rejection(self, bundle: Bundle, now: datetime) -> str | None:
        """Return the reason why the bundle is not this signer's; None: it is."""
        if any(_is_signed(bundle, key) for key in self.keys):
            return None
        return "it was not made with this signer's key"


@dataclass(frozen=True)
class CertificateSigner:
    """A signer whose certificates have this subject and are issued by one of these authorities."""

    authorities: Store
    subject: x509.Name

    def rejection(self, bundle: Bundle, now: datetime) -> str | None:
        """Return the reason why the bundle is not this signer's; None: it is."""
        if not bundle.certificates:
            return "it was made with a bare key, without a certificate"
        try:
            leaf, *intermediates = [x509.load_der_x509_certificate(each) for each in bundle.certificates]
            return self._rejection(bundle, leaf, intermediates, now)
        except _MALFORMED:
            return "its certificate is malformed"

    def _rejection(
        self, bundle: Bundle, leaf: x509.Certificate, intermediates: list[x509.Certificate], now: datetime
    ) -> str | None:
        if leaf.subject != self.subject:
            return f"its certificate has the subject {clipped(leaf.subject.rfc4514_string())}"
        if now > leaf.not_valid_after_utc:
            return f"its certificate expired on {leaf.not_valid_after_utc:%Y-%m-%d}"
        try:
            self._verify_chain(leaf, intermediates, now)
        except VerificationError:
            return "its certificate is not one of this signer's authority that is valid now"
        if not _may_sign(leaf):
            return "its certificate is not for signatures (key usage)"
        key = leaf.public_key()
        if not isinstance(key, Key) or not _is_signed(bundle, key):
            return "it was not made with the key of its certificate"
        return None

    def _verify_chain(self, leaf: x509.Certificate, intermediates: list[x509.Certificate], now: datetime) -> None:
        policy = PolicyBuilder().store(self.authorities).time(now)
        policy = policy.extension_policies(ca_policy=_AUTHORITIES, ee_policy=_CERTIFICATES)
        policy.build_client_verifier().verify(leaf, intermediates)


def load_signer(config: SignerConfig) -> Signer:
    """Return the signer with the keys in its file. Raise ValueError with the setting's name."""
    if config.public_key is not None:
        return KeySigner(_from_file(config.name, config.public_key, _keys))
    assert config.certificate is not None
    authorities = _from_file(config.name, config.certificate, x509.load_pem_x509_certificates)
    try:
        subject = x509.Name.from_rfc4514_string(config.subject or "")
    except ValueError:
        raise ValueError(
            f"signatures.signers: the subject of '{config.name}' must be of the form CN=release,O=Acme, got "
            f"{config.subject!r}"
        ) from None
    return CertificateSigner(Store(authorities), subject)


def _from_file(name: str, file: Path, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(file.expanduser().read_bytes())
    except OSError as error:
        reason = error.strerror or "it cannot be read"
    except _MALFORMED as error:
        reason = str(error)
    raise ValueError(f"signatures.signers: {file} of '{name}' cannot be used: {reason}")


def _keys(pem: bytes) -> tuple[Key, ...]:
    keys = tuple(load_pem_public_key(block) for block in _KEY.findall(pem))
    if not keys:
        raise ValueError("it has no public key in PEM form")
    if not all(isinstance(key, ed25519.Ed25519PublicKey) or _curve(key) in _HASHES for key in keys):
        raise ValueError(f"a key must be one for Ed25519 or on a curve of {', '.join(_HASHES)}")
    return tuple(key for key in keys if isinstance(key, Key))


def _curve(key: object) -> str | None:
    return key.curve.name if isinstance(key, ec.EllipticCurvePublicKey) else None


def _is_signed(bundle: Bundle, key: Key) -> bool:
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(bundle.signature, bundle.signed_bytes)
        elif key.curve.name in _HASHES:
            key.verify(bundle.signature, bundle.signed_bytes, ec.ECDSA(_HASHES[key.curve.name]()))
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _may_sign(leaf: x509.Certificate) -> bool:
    """Return whether the certificate is one for signatures, by the rule of the `model_signing` library."""
    for extension in leaf.extensions:
        if isinstance(extension.value, x509.KeyUsage) and extension.value.digital_signature:
            return True
        if isinstance(extension.value, x509.ExtendedKeyUsage) and ExtendedKeyUsageOID.CODE_SIGNING in extension.value:
            return True
    return False
