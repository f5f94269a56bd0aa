"""Sigstore bundles, which `model_signing sign` writes to `model.sig`: a signed envelope (DSSE) and its certificates.

https://docs.sigstore.dev/about/bundle/ and https://github.com/secure-systems-lab/dsse/blob/v1.0.2/envelope.md
"""

import base64
import binascii
from dataclasses import dataclass

from loragate.adapter_store.errors import AdapterInvalid
from loragate.peft_format.config.strict_json import Limits, parse_object
from loragate.peft_format.errors import AdapterRejected

SIGNATURE_FILE = "model.sig"
MAX_SIGNATURE_BYTES = 1 << 20
_LIMITS = Limits(size=MAX_SIGNATURE_BYTES, depth=16, values=50_000)
_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MAX_CERTIFICATES = 8


@dataclass(frozen=True)
class Bundle:
    """A signed statement. `certificates` are those of its signer and the intermediate ones, in DER; empty: it was made
    with a bare key."""

    payload: bytes
    signature: bytes
    certificates: tuple[bytes, ...]

    @property
    def signed_bytes(self) -> bytes:
        """What the signature is over: DSSE's pre-authentication encoding."""
        kind = _PAYLOAD_TYPE.encode()
        return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(self.payload), self.payload)


def parse_bundle(raw: bytes) -> Bundle:
    """Return what `model.sig` contains; nothing of it is verified yet. Raise AdapterInvalid."""
    match parse_signed_json(raw, SIGNATURE_FILE):
        case {
            "mediaType": str(media_type),
            "verificationMaterial": dict(material),
            "dsseEnvelope": {
                "payload": str(payload),
                "payloadType": str(payload_type),
                "signatures": [{"sig": str(signature)}],
            },
        }:
            if media_type != _MEDIA_TYPE:
                raise invalid_signature(f"its mediaType is not {_MEDIA_TYPE}")
            if payload_type != _PAYLOAD_TYPE:
                raise invalid_signature(f"its payloadType is not {_PAYLOAD_TYPE}")
            return Bundle(_decoded(payload), _decoded(signature), _certificates(material))
    raise invalid_signature("it is not a Sigstore bundle with one DSSE envelope, as `model_signing sign` writes it")


def parse_signed_json(raw: bytes, what: str) -> dict[str, object]:
    """Return a JSON object of bounded size and depth. Raise AdapterInvalid."""
    try:
        return parse_object(raw, _LIMITS, what)
    except AdapterRejected as rejected:
        raise AdapterInvalid(rejected.message, code="invalid_signature", param=SIGNATURE_FILE) from None


def invalid_signature(reason: str) -> AdapterInvalid:
    """Return the error for a `model.sig` that cannot be used; `reason` completes the sentence."""
    return AdapterInvalid(f"Invalid '{SIGNATURE_FILE}': {reason}.", code="invalid_signature", param=SIGNATURE_FILE)


def _certificates(material: dict[str, object]) -> tuple[bytes, ...]:
    match material:
        case {"certificate": _}:
            raise invalid_signature(
                "it was made with a Sigstore identity (keyless), which this server does not verify; sign with "
                "`model_signing sign key` or `model_signing sign certificate`"
            )
        case {"publicKey": dict()}:
            return ()
        case {"x509CertificateChain": {"certificates": [_, *_] as chain}} if len(chain) <= _MAX_CERTIFICATES:
            return tuple(_certificate(each) for each in chain)
    raise invalid_signature(f"it has neither a public key nor a chain of 1 to {_MAX_CERTIFICATES} certificates")


def _certificate(entry: object) -> bytes:
    match entry:
        case {"rawBytes": str(content)}:
            return _decoded(content)
    raise invalid_signature("a certificate in it has no rawBytes")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise invalid_signature("it has a value that is not base64") from None
