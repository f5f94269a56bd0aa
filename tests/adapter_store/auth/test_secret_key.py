import asyncio
from pathlib import Path
from typing import Any

import pytest

from loragate.adapter_store.auth.secret_key import SecretKeys, derive_key, secret_id
from loragate.adapter_store.auth.secret_key_file import add_secret_key, load_secret_keys, remove_secret_key
from loragate.adapter_store.errors import Invalid, WrongSecretKey
from loragate.adapter_store.store import Store


def test_the_key_is_created_once_and_private(tmp_path: Path) -> None:
    key = load_secret_keys(tmp_path / "data", None)
    assert len(key.primary) >= 32
    assert key.previous == ()
    assert load_secret_keys(tmp_path / "data", None) == key
    assert [(path.name, path.stat().st_mode & 0o777) for path in (tmp_path / "data").iterdir()] == [
        ("secret_key", 0o600)
    ]


def test_a_given_key_wins_and_is_not_written(tmp_path: Path) -> None:
    made = load_secret_keys(tmp_path, None)
    given = load_secret_keys(tmp_path, "another key, long enough")
    assert given != made
    assert load_secret_keys(tmp_path, None) == made
    assert load_secret_keys(tmp_path, (tmp_path / "secret_key").read_text().strip()) == made


def test_a_short_key_is_rejected_without_repeating_it(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as rejected:
        load_secret_keys(tmp_path, "short")
    assert "short" not in rejected.value.message


async def test_concurrent_processes_agree(tmp_path: Path) -> None:
    makers = (asyncio.to_thread(load_secret_keys, tmp_path, None) for _ in range(8))
    assert len(set(await asyncio.gather(*makers))) == 1


def test_a_rotation_keeps_the_old_secrets(tmp_path: Path) -> None:
    first = load_secret_keys(tmp_path, None).primary
    second = add_secret_key(tmp_path).primary
    third = add_secret_key(tmp_path).primary
    assert load_secret_keys(tmp_path, None) == SecretKeys(third, (second, first))
    assert [(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [("secret_key", 0o600)]
    remove_secret_key(tmp_path, secret_id(second))
    remove_secret_key(tmp_path, secret_id(third))
    assert load_secret_keys(tmp_path, None) == SecretKeys(third, (first,)), "the primary one stays"


def test_secrets_of_the_settings(tmp_path: Path) -> None:
    ours = add_secret_key(tmp_path)
    given = load_secret_keys(tmp_path, "the given secret", ["the secret before", "the given secret"])
    assert given == SecretKeys(b"the given secret", (b"the secret before",)), "the file belongs to another server"
    both = load_secret_keys(tmp_path, None, ["the secret before"])
    assert both == SecretKeys(ours.primary, (*ours.previous, b"the secret before"))
    assert not any(each.decode() in repr(both) for each in both.all)


async def test_of_concurrent_rotations_all_secrets_are_kept(tmp_path: Path) -> None:
    load_secret_keys(tmp_path, None)
    made = await asyncio.gather(*(asyncio.to_thread(add_secret_key, tmp_path) for _ in range(8)))
    kept = set(load_secret_keys(tmp_path, None).all)
    assert len(kept) == 9
    assert {each.primary for each in made} <= kept


def test_an_interrupted_rotation_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_secret_keys(tmp_path, None)

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="No space"):
            add_secret_key(tmp_path)
    assert load_secret_keys(tmp_path, None) == before
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


def test_derived_keys_follow_rfc_5869() -> None:
    """Compared with the definition: PRK = HMAC(zeros, key), OKM = HMAC(PRK, info | 1)."""
    import hashlib
    import hmac

    extracted = hmac.new(b"\0" * 32, b"key", hashlib.sha256).digest()
    assert derive_key(b"key", "x") == hmac.new(extracted, b"loragate x\x01", hashlib.sha256).digest()
    assert derive_key(b"key", "x") != derive_key(b"key", "y")


async def test_another_secret_key_is_rejected_with_the_reason(database_url: str, tmp_path: Any) -> None:
    await (await Store.open(database_url, str(tmp_path), b"k" * 32)).close()
    await (await Store.open(database_url, str(tmp_path), b"k" * 32)).close()
    with pytest.raises(WrongSecretKey, match="LORAGATE_SECRET_KEY"):
        await Store.open(database_url, str(tmp_path), b"K" * 32)


async def test_concurrent_first_opens_agree(database_url: str, tmp_path: Any) -> None:
    opened = await asyncio.gather(*(Store.open(database_url, str(tmp_path), b"k" * 32) for _ in range(4)))
    for store in opened:
        await store.close()
