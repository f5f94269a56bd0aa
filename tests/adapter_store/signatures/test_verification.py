"""Which signatures of an adapter count, and what is said about the others."""

import base64
import io
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from signed_adapters import Authority, Key, new_key, sign, signature_of, statement, write_public_key

from loragate.adapter_store.errors import AdapterInvalid, Conflict, Invalid
from loragate.adapter_store.signatures.bundle import MAX_SIGNATURE_BYTES, parse_bundle
from loragate.adapter_store.signatures.config import Require, SignatureConfig, SignerConfig
from loragate.adapter_store.signatures.policy import SignaturePolicy, load_policy
from loragate.adapter_store.timestamps import utc_now

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
FILES = {CONFIG: b'{"r": 4}', TENSORS: b"the tensors"}
SUBJECT = "CN=release,O=Acme"
REAL = Path(__file__).parent / "model_signing"


@dataclass
class Acme:
    """A signer with a key, one with certificates, and the policy that requires one of them."""

    folder: Path
    key: Key = field(default_factory=new_key)
    authority: Authority = field(default_factory=Authority)

    @property
    def policy(self) -> SignaturePolicy:
        by_key = SignerConfig("by-key", public_key=write_public_key(self.folder / "key.pub", self.key))
        root = self.authority.write(self.folder / "ca.pem")
        by_certificate = SignerConfig("by-certificate", certificate=root, subject=SUBJECT)
        return load_policy(SignatureConfig(Require.ALWAYS, (by_key, by_certificate)))

    def signer_of(self, signature: bytes | None, files: dict[str, bytes] = FILES) -> str | None:
        return self.policy.of(()).signer_of(signature, files[CONFIG], io.BytesIO(files[TENSORS]))

    def rejection(self, signature: bytes | None, files: dict[str, bytes] = FILES) -> AdapterInvalid:
        with pytest.raises(AdapterInvalid) as raised:
            self.signer_of(signature, files)
        assert raised.value.status == 400
        assert len(raised.value.message) < 1000
        assert raised.value.message.isprintable()
        return raised.value


@pytest.fixture
def acme(tmp_path: Path) -> Acme:
    return Acme(tmp_path)


@pytest.mark.parametrize("method", ["key", "certificate"])
def test_what_model_signing_has_signed(method: str) -> None:
    """`model_signing` 1.1.1 wrote these files: `model_signing sign key support-bot --private_key …`, and `sign
    certificate` with a chain of openssl's certificates. The folder also had a README.md."""
    by_key = SignerConfig("key", public_key=REAL / "key.pub")
    by_certificate = SignerConfig("certificate", certificate=REAL / "root.pem", subject=SUBJECT)
    policy = load_policy(SignatureConfig(Require.ALWAYS, (by_key, by_certificate))).of(())
    signature, config = (REAL / f"{method}.sig").read_bytes(), (REAL / CONFIG).read_bytes()
    with (REAL / TENSORS).open("rb") as tensors:
        assert policy.signer_of(signature, config, tensors) == method
        with pytest.raises(AdapterInvalid, match="is not the file"):
            policy.signer_of(signature, config + b" ", tensors)


@pytest.mark.parametrize("curve", [ec.SECP256R1, ec.SECP384R1, ec.SECP521R1])
def test_keys_of_each_curve(acme: Acme, curve: type[ec.EllipticCurve]) -> None:
    acme.key = new_key(curve)
    assert acme.signer_of(signature_of(FILES, acme.key)) == "by-key"


def test_an_ed25519_key(acme: Acme) -> None:
    acme.key = ed25519.Ed25519PrivateKey.generate()
    assert acme.signer_of(signature_of(FILES, acme.key)) == "by-key"
    assert acme.rejection(signature_of(FILES, ed25519.Ed25519PrivateKey.generate())).code == "unknown_signer"


def test_a_signer_may_have_several_keys(acme: Acme) -> None:
    """So that a key can be replaced without a moment in which neither counts."""
    file, keys = acme.folder / "keys.pub", (new_key(), new_key())
    write_public_key(file, *keys)
    policy = load_policy(SignatureConfig(Require.ALWAYS, (SignerConfig("acme", public_key=file),))).of(())
    for key in keys:
        assert policy.signer_of(signature_of(FILES, key), FILES[CONFIG], io.BytesIO(FILES[TENSORS])) == "acme"


def test_certificates_of_an_intermediate_authority(acme: Acme) -> None:
    between, key = Authority("Acme team", acme.authority), new_key()
    chain = [between.issue(SUBJECT, key), between.certificate]
    assert acme.signer_of(signature_of(FILES, key, chain)) == "by-certificate"
    assert acme.rejection(signature_of(FILES, key, chain[:1])).code == "unknown_signer"


def test_files_that_were_not_sent_are_not_missed(acme: Acme) -> None:
    whole = {**FILES, "README.md": b"# Support bot", "checkpoint-1/adapter_config.json": b"{}"}
    assert acme.signer_of(signature_of(whole, acme.key)) == "by-key"


@pytest.mark.parametrize("file", [CONFIG, TENSORS])
def test_a_changed_file_is_named(acme: Acme, file: str) -> None:
    rejected = acme.rejection(signature_of(FILES, acme.key), FILES | {file: FILES[file] + b" "})
    assert (rejected.code, rejected.param) == ("signature_mismatch", file)


@pytest.mark.parametrize("file", [CONFIG, TENSORS])
def test_a_file_that_is_not_in_the_statement_is_named(acme: Acme, file: str) -> None:
    """Nor does one in another folder count, such as a checkpoint's."""
    signed = {name: content for name, content in FILES.items() if name != file} | {f"old/{file}": FILES[file]}
    rejected = acme.rejection(signature_of(signed, acme.key))
    assert (rejected.code, rejected.param) == ("signature_mismatch", file)


def test_a_signature_of_another_adapter(acme: Acme) -> None:
    other = {CONFIG: FILES[CONFIG], TENSORS: b"other tensors"}
    assert acme.rejection(signature_of(other, acme.key)).param == TENSORS


def test_an_unknown_key(acme: Acme) -> None:
    rejected = acme.rejection(signature_of(FILES, new_key()))
    assert (rejected.code, rejected.param) == ("unknown_signer", "model.sig")
    assert "by-key: it was not made with this signer's key" in rejected.message


def test_a_statement_that_was_changed_after_it_was_signed(acme: Acme) -> None:
    bundle = sign(statement(FILES), acme.key)
    other = base64.b64encode(orjson.dumps(statement(FILES | {TENSORS: b"other"}))).decode()
    bundle["dsseEnvelope"]["payload"] = other
    assert acme.rejection(orjson.dumps(bundle), FILES | {TENSORS: b"other"}).code == "unknown_signer"


Chain = Callable[[Acme, Key], list[x509.Certificate]]
CHAINS: dict[str, tuple[Chain, str]] = {
    "expired": (lambda acme, key: [acme.authority.issue(SUBJECT, key, days=(-20, -1))], "certificate expired on"),
    "not yet valid": (lambda acme, key: [acme.authority.issue(SUBJECT, key, days=(1, 20))], "valid now"),
    "of another subject": (
        lambda acme, key: [acme.authority.issue("CN=intern,O=Acme", key)],
        "has the subject CN=intern,O=Acme",
    ),
    "of a subject with a line break": (
        lambda acme, key: [acme.authority.issue("CN=release\\0Aadmin: ok", key)],
        "has the subject CN=release",
    ),
    "of another authority with the same name": (lambda acme, key: [Authority().issue(SUBJECT, key)], "authority"),
    "of an authority that it brings": (
        lambda acme, key: [(own := Authority()).issue(SUBJECT, key), own.certificate],
        "authority",
    ),
    "of a certificate that is no authority": (
        lambda acme, key: [_issued_by_a_signer(acme, key), acme.authority.issue(SUBJECT, key)],
        "authority",
    ),
    "not for signatures": (lambda acme, key: [acme.authority.issue(SUBJECT, key, signs=False)], "key usage"),
    "of another key": (lambda acme, key: [acme.authority.issue(SUBJECT, new_key())], "the key of its certificate"),
}


def _issued_by_a_signer(acme: Acme, key: Key) -> x509.Certificate:
    """Return a certificate that the holder of a certificate for signatures has issued."""
    holder = Authority("release")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    holder.key, holder.certificate = key, acme.authority.issue(SUBJECT, key)
    return holder.issue(SUBJECT, key)


@pytest.mark.parametrize("case", CHAINS)
def test_certificates_that_do_not_count(acme: Acme, case: str) -> None:
    make, reason = CHAINS[case]
    key = new_key()
    rejected = acme.rejection(signature_of(FILES, key, make(acme, key)))
    assert (rejected.code, rejected.param) == ("unknown_signer", "model.sig")
    assert reason in rejected.message.partition("by-certificate:")[2]


def test_a_certificate_counts_while_it_is_valid(acme: Acme) -> None:
    key = new_key()
    bundle = parse_bundle(signature_of(FILES, key, [acme.authority.issue(SUBJECT, key, days=(-1, 10))]))
    signer = acme.policy.signers["by-certificate"]
    assert signer.rejection(bundle, utc_now()) is None
    assert "expired" in (signer.rejection(bundle, utc_now() + timedelta(days=11)) or "")


def test_what_the_same_key_signed_for_another_purpose(acme: Acme) -> None:
    provenance = statement(FILES, predicateType="https://slsa.dev/provenance/v1")
    assert acme.rejection(orjson.dumps(sign(provenance, acme.key))).code == "invalid_signature"
    other_type = sign(statement(FILES), acme.key, kind="application/vnd.other+json")
    assert acme.rejection(orjson.dumps(other_type)).code == "invalid_signature"
    other_type["dsseEnvelope"]["payloadType"] = "application/vnd.in-toto+json"
    assert acme.rejection(orjson.dumps(other_type)).code == "unknown_signer"


def _bundle(acme: Acme, *path: str, value: Any) -> bytes:
    """Return a valid bundle with one value replaced."""
    whole = sign(statement(FILES), acme.key)
    at = whole
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return orjson.dumps(whole)


def _signed(acme: Acme, predicate: dict[str, Any], **changes: Any) -> bytes:
    """Return a bundle whose statement has a changed predicate."""
    whole = statement(FILES)
    return orjson.dumps(sign({**whole, "predicate": {**whole["predicate"], **predicate}, **changes}, acme.key))


def _resources(**changes: Any) -> list[dict[str, Any]]:
    first, *others = statement(FILES)["predicate"]["resources"]
    return [{**first, **changes}, *others]


MALFORMED: dict[str, Callable[[Acme], bytes]] = {
    "empty": lambda acme: b"",
    "not JSON": lambda acme: b"\x80\x04\x95pickle",
    "not UTF-8": lambda acme: b'{"mediaType": "\xff"}',
    "a list": lambda acme: b"[]",
    "huge": lambda acme: b" " * (MAX_SIGNATURE_BYTES + 1),
    "nested": lambda acme: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "many values": lambda acme: b'{"a":[' + b",".join([b"1"] * 300_000) + b"]}",
    "a key twice": lambda acme: _bundle(acme, "x", value=1)[:-1] + b',"mediaType":"x"}',
    "of an older version": lambda acme: _bundle(
        acme, "mediaType", value="application/vnd.dev.sigstore.bundle+json;version=0.1"
    ),
    "without an envelope": lambda acme: _bundle(acme, "dsseEnvelope", value={}),
    "without a signature": lambda acme: _bundle(acme, "dsseEnvelope", "signatures", value=[]),
    "with two signatures": lambda acme: _bundle(
        acme, "dsseEnvelope", "signatures", value=[{"sig": "aa"}, {"sig": "aa"}]
    ),
    "a number as signature": lambda acme: _bundle(acme, "dsseEnvelope", "signatures", value=[{"sig": 1}]),
    "not base64": lambda acme: _bundle(acme, "dsseEnvelope", "payload", value="ä"),
    "without material": lambda acme: _bundle(acme, "verificationMaterial", value={}),
    "keyless": lambda acme: _bundle(acme, "verificationMaterial", value={"certificate": {"rawBytes": "aa"}}),
    "no certificates": lambda acme: _bundle(
        acme, "verificationMaterial", value={"x509CertificateChain": {"certificates": []}}
    ),
    "a thousand certificates": lambda acme: _bundle(
        acme, "verificationMaterial", value={"x509CertificateChain": {"certificates": [{"rawBytes": ""}] * 1000}}
    ),
    "an empty certificate": lambda acme: _bundle(
        acme, "verificationMaterial", value={"x509CertificateChain": {"certificates": [{}]}}
    ),
    "a statement that is not JSON": lambda acme: orjson.dumps(sign("text", acme.key)),  # type: ignore[arg-type]
    "a statement without files": lambda acme: orjson.dumps(sign({"_type": "x"}, acme.key)),
    "another kind of statement": lambda acme: _signed(acme, {}, _type="https://in-toto.io/Statement/v0.1"),
    "two subjects": lambda acme: _signed(acme, {}, subject=statement(FILES)["subject"] * 2),
    "another digest of the whole": lambda acme: _signed(acme, {}, subject=[{"digest": {"sha256": "0" * 64}}]),
    "parts of files": lambda acme: _signed(acme, {"serialization": {"method": "shards"}}),
    "another hash": lambda acme: _signed(acme, {"resources": _resources(algorithm="blake2b")}),
    "a file twice": lambda acme: _signed(acme, {"resources": _resources(name=TENSORS)}),
    "a digest that is none": lambda acme: _signed(acme, {"resources": _resources(digest="X" * 64)}),
    "a file that is a number": lambda acme: _signed(acme, {"resources": [1]}),
    "files that are no list": lambda acme: _signed(acme, {"resources": {}}),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_signatures(acme: Acme, case: str) -> None:
    rejected = acme.rejection(MALFORMED[case](acme))
    assert (rejected.code, rejected.param) == ("invalid_signature", "model.sig")


def test_a_keyless_signature_says_what_to_use(acme: Acme) -> None:
    assert "`model_signing sign key`" in acme.rejection(MALFORMED["keyless"](acme)).message


def test_damaged_certificates_and_signatures(acme: Acme) -> None:
    """Bytes are changed at random: every result is a rejection with a reason."""
    chance, key = random.Random(1), new_key()
    chain = [acme.authority.issue(SUBJECT, key)]
    bundle = sign(statement(FILES), key, chain)
    certificate = bundle["verificationMaterial"]["x509CertificateChain"]["certificates"][0]
    whole, policy = base64.b64decode(certificate["rawBytes"]), acme.policy.of(())
    accepted = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 1, 4))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        certificate["rawBytes"] = base64.b64encode(damaged[: chance.choice((len(damaged), 40))]).decode()
        with suppress(AdapterInvalid):
            policy.signer_of(orjson.dumps(bundle), FILES[CONFIG], io.BytesIO(FILES[TENSORS]))
            accepted += 1
    assert accepted < 10  # a byte may have been replaced by itself


def test_what_a_policy_requires(acme: Acme) -> None:
    good, bad = signature_of(FILES, acme.key), signature_of(FILES, new_key())
    sent = FILES[CONFIG], io.BytesIO(FILES[TENSORS])
    signers = acme.policy.signers
    never = SignaturePolicy(Require.NEVER, signers).of(())
    assert [never.signer_of(each, *sent) for each in (None, good, bad, b"")] == [None] * 4
    if_present = SignaturePolicy(Require.IF_PRESENT, signers).of(())
    assert [if_present.signer_of(each, *sent) for each in (None, good)] == [None, "by-key"]
    with pytest.raises(AdapterInvalid, match="by-key"):
        if_present.signer_of(bad, *sent)
    rejected = acme.rejection(None)
    assert (rejected.code, rejected.param) == ("signature_required", "model.sig")
    assert "by-key, by-certificate" in rejected.message


@pytest.mark.parametrize("require", Require)
def test_a_tenants_own_signers_are_required_and_are_the_only_ones(acme: Acme, require: Require) -> None:
    whole = SignaturePolicy(require, acme.policy.signers)
    policy, sent = whole.of(["by-certificate"]), (FILES[CONFIG], io.BytesIO(FILES[TENSORS]))
    for signature in (None, signature_of(FILES, acme.key)):
        with pytest.raises(AdapterInvalid):
            policy.signer_of(signature, *sent)
    key = new_key()
    signature = signature_of(FILES, key, [acme.authority.issue(SUBJECT, key)])
    assert policy.signer_of(signature, *sent) == "by-certificate"


def test_a_signer_that_is_no_longer_configured_does_not_count(acme: Acme) -> None:
    policy = SignaturePolicy(Require.NEVER, {}).of(["by-key"])
    for signature in (None, signature_of(FILES, acme.key)):
        with pytest.raises(AdapterInvalid):
            policy.signer_of(signature, FILES[CONFIG], io.BytesIO(FILES[TENSORS]))


def test_training_counts_as_signed_only_where_it_is_trusted(acme: Acme) -> None:
    signers = acme.policy.signers
    assert SignaturePolicy().of(()).trainer() is None
    assert SignaturePolicy(Require.ALWAYS, signers, trust_fine_tuning=True).of(()).trainer() == "loragate"
    trusting = SignaturePolicy(Require.NEVER, signers, trust_fine_tuning=True)
    assert trusting.of(["by-key", "loragate"]).trainer() == "loragate"
    for policy in (
        SignaturePolicy(Require.ALWAYS, signers).of(()),
        trusting.of(["by-key"]),
        SignaturePolicy(Require.ALWAYS, signers).of(["loragate"]),
    ):
        with pytest.raises(Conflict, match="TRUST_FINE_TUNING"):
            policy.trainer()


def test_names_of_signers(acme: Acme) -> None:
    acme.policy.check_names(["by-certificate", "by-key"])
    for names in (["by-key", "other"], ["loragate"]):
        with pytest.raises(Invalid, match=f"'{names[-1]}' is not configured"):
            acme.policy.check_names(names)
    SignaturePolicy(trust_fine_tuning=True).check_names(["loragate"])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"name": "Acme release"}, "a name has 1 to 64"),
        ({"name": "loragate"}, "adapters trained here"),
        ({"public_key": None}, "either a public_key or a certificate"),
        ({"certificate": Path("ca.pem"), "subject": SUBJECT}, "either a public_key or a certificate"),
        ({"subject": SUBJECT}, "both a certificate and a subject"),
        ({"public_key": None, "certificate": Path("ca.pem")}, "both a certificate and a subject"),
    ],
)
def test_invalid_signers(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SignerConfig(**{"name": "acme", "public_key": Path("key.pub"), **wrong})


def test_invalid_settings() -> None:
    acme = SignerConfig("acme", public_key=Path("key.pub"))
    with pytest.raises(ValueError, match="has a name twice: acme, acme"):
        SignatureConfig(Require.ALWAYS, (acme, acme))
    for require in (Require.ALWAYS, Require.IF_PRESENT):
        with pytest.raises(ValueError, match=f"require is '{require}', which needs at least one"):
            SignatureConfig(require)


def test_invalid_files_of_signers(acme: Acme) -> None:
    files = {"key.pub": b"nothing", "ca.pem": b"nothing"}
    for name, content in files.items():
        (acme.folder / name).write_bytes(content)
    root = acme.authority.write(acme.folder / "root.pem")
    for config, reason in (
        (SignerConfig("acme", public_key=acme.folder / "none.pub"), "none.pub of 'acme' cannot be used: No such file"),
        (SignerConfig("acme", public_key=acme.folder / "key.pub"), "no public key in PEM form"),
        (SignerConfig("acme", certificate=acme.folder / "ca.pem", subject=SUBJECT), "ca.pem of 'acme' cannot be used"),
        (SignerConfig("acme", certificate=root, subject="release"), "must be of the form CN=release,O=Acme"),
    ):
        with pytest.raises(ValueError, match=reason):
            load_policy(SignatureConfig(Require.ALWAYS, (config,)))
    write_public_key(acme.folder / "key.pub", new_key(ec.SECP256K1))
    with pytest.raises(ValueError, match="a curve of secp256r1"):
        load_policy(SignatureConfig(Require.ALWAYS, (SignerConfig("acme", public_key=acme.folder / "key.pub"),)))
