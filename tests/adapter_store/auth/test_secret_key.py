import asyncio
from pathlib import Path
from typing import Any

import pytest

from loragate.adapter_store.auth.secret_key import derive_key, load_or_create_secret_key
from loragate.adapter_store.errors import Invalid, WrongSecretKey
from loragate.adapter_store.store import Store


def test_the_key_is_created_once_and_private(tmp_path: Path) -> None:
    key = load_or_create_secret_key(tmp_path / "data", None)
    assert len(key) >= 32
    assert load_or_create_secret_key(tmp_path / "data", None) == key
    assert [(path.name, path.stat().st_mode & 0o777) for path in (tmp_path / "data").iterdir()] == [
        ("secret_key", 0o600)
    ]


def test_a_given_key_wins_and_is_not_written(tmp_path: Path) -> None:
    made = load_or_create_secret_key(tmp_path, None)
    given = load_or_create_secret_key(tmp_path, "another key, long enough")
    assert given != made
    assert load_or_create_secret_key(tmp_path, None) == made
    assert load_or_create_secret_key(tmp_path, (tmp_path / "secret_key").read_text().strip()) == made


def test_a_short_key_is_rejected_without_repeating_it(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as rejected:
        load_or_create_secret_key(tmp_path, "short")
    assert "short" not in rejected.value.message


async def test_concurrent_processes_agree(tmp_path: Path) -> None:
    makers = (asyncio.to_thread(load_or_create_secret_key, tmp_path, None) for _ in range(8))
    assert len(set(await asyncio.gather(*makers))) == 1


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
