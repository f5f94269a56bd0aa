"""The signed statement: an in-toto statement with the digest of each of a model's files.

https://github.com/sigstore/model-transparency, predicate https://model_signing/signature/v1.0
"""

import hashlib
import re
from collections.abc import Mapping

from loragate.adapter_store.errors import AdapterInvalid
from loragate.adapter_store.signatures.bundle import SIGNATURE_FILE, invalid_signature, parse_signed_json

_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
_DIGEST = re.compile(r"[0-9a-f]{64}")

Digests = Mapping[str, str]
"""SHA-256 in hexadecimal digits, by the file's name in the signed folder."""


def parse_statement(payload: bytes) -> Digests:
    """Return the digests in a statement. Raise AdapterInvalid."""
    match parse_signed_json(payload, "The signed statement"):
        case {
            "_type": str(kind),
            "predicateType": str(predicate),
            "subject": [{"digest": {"sha256": str(root)}}],
            "predicate": {"serialization": {"method": str(method)}, "resources": list(resources)},
        }:
            if (kind, predicate) != (_STATEMENT, _PREDICATE):
                raise invalid_signature(f"the signed statement is not one about a model ({_PREDICATE})")
            if method != "files":
                raise invalid_signature("it has digests of parts of files; sign whole files (without shards)")
            return _digests(resources, root)
    raise invalid_signature("the signed statement does not list a model's files, as `model_signing sign` writes it")


def check_digests(signed: Digests, received: Digests, signer: str) -> None:
    """Raise AdapterInvalid, with the file's name, unless each received file is signed with the digest that it has.

    Files that are signed but that were not sent (README.md, a tokenizer) take no effect and are not missed.
    """
    for file, digest in received.items():
        if file not in signed:
            raise AdapterInvalid(
                f"'{file}' is not among the files that {signer} signed in '{SIGNATURE_FILE}'. Sign the adapter's own "
                "folder, with both files in it.",
                code="signature_mismatch",
                param=file,
            )
        if signed[file] != digest:
            raise AdapterInvalid(
                f"'{file}' is not the file that {signer} signed: its SHA-256 is {digest}, and '{SIGNATURE_FILE}' has "
                f"{signed[file]}.",
                code="signature_mismatch",
                param=file,
            )


def _digests(resources: list[object], root: str) -> Digests:
    digests: dict[str, str] = {}
    for resource in resources:
        match resource:
            case {"name": str(name), "algorithm": "sha256", "digest": str(digest)} if _DIGEST.fullmatch(digest):
                if name in digests:
                    raise invalid_signature("the signed statement has a file twice")
                digests[name] = digest
            case _:
                raise invalid_signature("the signed statement has a file without a name and a SHA-256 digest")
    if hashlib.sha256(bytes.fromhex("".join(digests.values()))).hexdigest() != root:
        raise invalid_signature("the signed statement's digest is not that of the files in it")
    return digests
