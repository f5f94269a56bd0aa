"""The policy for publishing: which tenants' adapters must be signed, and by whom."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from loragate.adapter_store.errors import AdapterInvalid, Conflict, Invalid
from loragate.adapter_store.file_digest import sha256_digest
from loragate.adapter_store.signatures.bundle import SIGNATURE_FILE, Bundle, parse_bundle
from loragate.adapter_store.signatures.config import OUR_TRAINING, Require, SignatureConfig
from loragate.adapter_store.signatures.signers import Signer, load_signer
from loragate.adapter_store.signatures.statement import check_digests, parse_statement
from loragate.adapter_store.timestamps import utc_now
from loragate.peft_format.errors import CONFIG_FILE, TENSOR_FILE


@dataclass(frozen=True)
class TenantPolicy:
    """What holds for one tenant: `signers` are those whose signatures count."""

    required: bool
    verifies: bool
    signers: Mapping[str, Signer]
    trusts_training: bool

    def signer_of(self, signature: bytes | None, config_json: bytes, tensors: BinaryIO) -> str | None:
        """Return the signer of an upload; None: none is required, and none was found.

        Raise AdapterInvalid for a missing or invalid signature, an unknown signer, and a file that is not the signed
        one. Call it in a thread, because it reads the whole file.
        """
        if not self.verifies:
            return None
        if signature is None:
            if not self.required:
                return None
            raise AdapterInvalid(
                f"Missing '{SIGNATURE_FILE}': {self._requirement()}. Send the signature with the two files; "
                "`model_signing sign key` writes it.",
                code="signature_required",
                param=SIGNATURE_FILE,
            )
        bundle = parse_bundle(signature)
        signer = self._signer(bundle)
        received = {
            CONFIG_FILE: hashlib.sha256(config_json).hexdigest(),
            TENSOR_FILE: sha256_digest(tensors).hex(),
        }
        check_digests(parse_statement(bundle.payload), received, signer)
        return signer

    def accepts(self, signer: str | None) -> bool:
        """Return whether a version that this signer signed, or none, could be published now."""
        return not self.required or signer in self.signers or (signer == OUR_TRAINING and self.trusts_training)

    def trainer(self) -> str | None:
        """Return the signer to record for an adapter that was trained here; None: none is required.

        Raise Conflict if such adapters do not count as signed.
        """
        if self.trusts_training:
            return OUR_TRAINING
        if not self.required:
            return None
        raise Conflict(
            "This tenant's adapters must be signed, and those of fine-tuning jobs are not. The operator can trust them "
            "with LORAGATE_SIGNATURES__TRUST_FINE_TUNING and, for a tenant with signers of its own, with "
            f"'{OUR_TRAINING}' as one of them.",
            code="signature_required",
        )

    def _signer(self, bundle: Bundle) -> str:
        now = utc_now()
        reasons: dict[str, str] = {}
        for name, signer in self.signers.items():
            reason = signer.rejection(bundle, now)
            if reason is None:
                return name
            reasons[name] = reason
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or "none is configured"
        raise AdapterInvalid(
            f"'{SIGNATURE_FILE}' is not of a signer that this tenant's adapters may have ({why}).",
            code="unknown_signer",
            param=SIGNATURE_FILE,
        )

    def _requirement(self) -> str:
        if self.signers:
            return f"this tenant's adapters must be signed by one of {', '.join(self.signers)}"
        return "this tenant's adapters must be signed, and none of its signers is configured now"


@dataclass(frozen=True)
class SignaturePolicy:
    """The operator's policy, with the keys of the signers."""

    require: Require = Require.NEVER
    signers: Mapping[str, Signer] = field(default_factory=dict)
    trust_fine_tuning: bool = False

    def check_names(self, names: Sequence[str]) -> None:
        """Raise Invalid unless all names are those of signers."""
        known = (*self.signers, *([OUR_TRAINING] if self.trust_fine_tuning else []))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise Invalid(
                f"Invalid 'signers': {unknown[0][:64]!r} is not configured. LORAGATE_SIGNATURES__SIGNERS has "
                f"{', '.join(known) or 'none'}.",
                param="signers",
            )

    def of(self, names: Sequence[str]) -> TenantPolicy:
        """Return the policy for a tenant with these signers of its own; none: the operator's policy holds."""
        if not names:
            required, verifies = self.require is Require.ALWAYS, self.require is not Require.NEVER
            return TenantPolicy(required, verifies, self.signers, self.trust_fine_tuning)
        signers = {name: self.signers[name] for name in names if name in self.signers}
        trusts = self.trust_fine_tuning and OUR_TRAINING in names
        return TenantPolicy(required=True, verifies=True, signers=signers, trusts_training=trusts)


UNSIGNED = SignaturePolicy()
"""The policy of an installation without signers."""


def load_policy(config: SignatureConfig) -> SignaturePolicy:
    """Return the policy with the keys in the signers' files. Raise ValueError with the setting's name."""
    signers = {signer.name: load_signer(signer) for signer in config.signers}
    return SignaturePolicy(Require(config.require), signers, config.trust_fine_tuning)
