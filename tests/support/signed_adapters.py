"""Signatures of adapters as `model_signing sign` makes them, with keys and certificates made on the spot."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
KIND = "application/vnd.in-toto+json"
_HASHES = {256: hashes.SHA256, 384: hashes.SHA384, 521: hashes.SHA512}


def new_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def public_pem(*keys: Key) -> bytes:
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return b"".join(key.public_key().public_bytes(*form) for key in keys)


def write_public_key(file: Path, *keys: Key) -> Path:
    file.write_bytes(public_pem(*keys))
    return file


def statement(files: Mapping[str, bytes], **changes: Any) -> dict[str, Any]:
    """Return what is signed about a folder with these files; `changes` replaces its parts."""
    digests = {name: hashlib.sha256(content) for name, content in sorted(files.items())}
    resources = [{"name": name, "algorithm": "sha256", "digest": each.hexdigest()} for name, each in digests.items()]
    root = hashlib.sha256(b"".join(each.digest() for each in digests.values())).hexdigest()
    whole = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "support-bot", "digest": {"sha256": root}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "resources": resources,
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": []},
        },
    }
    return {**whole, **changes}


def sign(
    signed: Mapping[str, Any], key: Key, chain: Sequence[x509.Certificate] = (), *, kind: str = KIND
) -> dict[str, Any]:
    """Return the bundle with a statement, as JSON would have it."""
    payload = orjson.dumps(signed)
    encoded = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        signature = key.sign(encoded)
    else:
        signature = key.sign(encoded, ec.ECDSA(_HASHES[key.curve.key_size]()))
    certificates = [{"rawBytes": _text(each.public_bytes(serialization.Encoding.DER))} for each in chain]
    made_with = {"x509CertificateChain": {"certificates": certificates}} if chain else {"publicKey": {"hint": "x"}}
    return {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {**made_with, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": _text(payload),
            "payloadType": kind,
            "signatures": [{"sig": _text(signature), "keyid": ""}],
        },
    }


def signature_of(files: Mapping[str, bytes], key: Key, chain: Sequence[x509.Certificate] = ()) -> bytes:
    """Return the `model.sig` of a folder with these files."""
    return orjson.dumps(sign(statement(files), key, chain))


class Authority:
    """A certificate authority; with an `issuer` an intermediate one."""

    def __init__(self, name: str = "Acme model signing", issuer: "Authority | None" = None) -> None:
        self.key = new_key()
        self._issuer = issuer or self
        self.certificate = _certificate(f"CN={name},O=Acme", self.key, None)
        self.certificate = _certificate(f"CN={name},O=Acme", self.key, self._issuer)

    def write(self, file: Path) -> Path:
        """Write its certificate, as an operator would configure it."""
        file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return file

    def issue(self, subject: str, key: Key, *, days: tuple[int, int] = (-1, 1), signs: bool = True) -> x509.Certificate:
        """Issue a certificate that is valid from day to day, counted from now."""
        return _certificate(subject, key, self, days=days, signs=signs)


def _certificate(
    subject: str, key: Key, issuer: Authority | None, *, days: tuple[int, int] = (-30, 30), signs: bool | None = None
) -> x509.Certificate:
    """Return a certificate: an authority's where `signs` is None, made by itself where there is no issuer yet."""
    name, now = x509.Name.from_rfc4514_string(subject), datetime.now(UTC)
    by, by_key = (name, key) if issuer is None else (issuer.certificate.subject, issuer.key)
    is_authority = signs is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by_key.public_key()), critical=False)
    )
    if is_authority or not signs:
        usage = x509.KeyUsage(False, False, False, False, not is_authority, is_authority, False, False, False)
        builder = builder.add_extension(usage, critical=True)
    else:
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
    return builder.sign(by_key, None if isinstance(by_key, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
