"""The file with the secret keys in the data directory: one a line, the primary one first, mode 0600."""

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loragate.adapter_store.auth.secret_key import SecretKeys, secret_id
from loragate.adapter_store.errors import Invalid

FILE_NAME = "secret_key"
_MIN_LENGTH = 16


def load_secret_keys(data_dir: Path, given: str | None, previous: Sequence[str] = ()) -> SecretKeys:
    """Return the given secret, or those in `data_dir`, where one is created if the file is missing, and `previous`.

    A line of the file may be used elsewhere as LORAGATE_SECRET_KEY: both mean the same secret.
    """
    texts = [given] if given is not None else _read(data_dir / FILE_NAME)
    return parse_secret_keys((*texts, *previous))


def parse_secret_keys(texts: Sequence[str]) -> SecretKeys:
    """Return the secrets of these texts, the primary one first. Raise Invalid for one that is too short."""
    primary, *more = (_checked(text) for text in dict.fromkeys(texts))
    return SecretKeys(primary, tuple(more))


def split_secret_keys(text: str) -> list[str]:
    """Return the secrets in the text of such a file."""
    return [line for line in map(str.strip, text.splitlines()) if line]


def write_secret_keys(data_dir: Path, texts: Sequence[str]) -> None:
    """Write the secrets of a backup to `data_dir`, in place of those that may be there. Raise Invalid, OSError."""
    parse_secret_keys(texts)
    with _alone(data_dir):
        _replace(data_dir / FILE_NAME, texts)


def new_secret_key() -> str:
    """Return a new secret of 256 bits."""
    return secrets.token_hex(32)


def add_secret_key(data_dir: Path) -> SecretKeys:
    """Make a new secret the primary one, and keep the others. Return all."""
    path = data_dir / FILE_NAME
    with _alone(data_dir):
        _replace(path, [new_secret_key(), *_read(path)])
    return load_secret_keys(data_dir, None)


def remove_secret_key(data_dir: Path, wanted: str) -> None:
    """Remove the secret with this id from the file, if it is there. The primary one stays."""
    path = data_dir / FILE_NAME
    with _alone(data_dir):
        primary, *others = _read(path)
        kept = [each for each in others if secret_id(each.encode()) != wanted]
        if len(kept) < len(others):
            _replace(path, [primary, *kept])


@contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """Change the file as the only process: of two rotations at a time, both secrets are kept."""
    data_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> list[str]:
    if not path.exists():
        _create(path)
    return split_secret_keys(path.read_text(encoding="utf-8")) or [""]


def _checked(text: str) -> bytes:
    if len(text) < _MIN_LENGTH:
        raise Invalid(f"The secret key must have at least {_MIN_LENGTH} characters.", param="secret_key")
    return text.encode()


def _create(path: Path) -> None:
    """Create the file by linking a complete one, so that simultaneous processes read the same secret."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path, [new_secret_key()])
    try:
        os.link(draft, path)
        _sync(path.parent)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _replace(path: Path, lines: Sequence[str]) -> None:
    """Replace the file as a whole, also when the machine fails meanwhile."""
    draft = _draft(path, lines)
    try:
        draft.replace(path)
    except BaseException:
        draft.unlink()
        raise
    _sync(path.parent)


def _draft(path: Path, lines: Sequence[str]) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink()
        raise
    return draft


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
