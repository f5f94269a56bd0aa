"""Several replicas share what one machine would otherwise keep for itself, or do not start."""

from typing import Any

import pytest

from loragate.cli.data_dir.preparation import check_replicas
from loragate.cli.errors import CliError
from loragate.cli.settings.model import Settings

SHARED = {
    "replicas": 2,
    "redis_url": "redis://cache:6379",
    "secret_key": "k" * 32,
    "database_url": "postgresql://loragate@db/loragate",
    "blob_url": "s3://bucket/prefix",
}


@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        ({"secret_key": None}, "LORAGATE_SECRET_KEY"),
        ({"database_url": None}, "LORAGATE_DATABASE_URL"),
        ({"database_url": "sqlite:////srv/loragate.db"}, "LORAGATE_DATABASE_URL"),
        ({"redis_url": None}, "LORAGATE_REDIS_URL"),
        ({"blob_url": None}, "LORAGATE_BLOB_FOLDER_IS_SHARED"),
        ({"blob_url": "file:///srv/blobs"}, "LORAGATE_BLOB_URL"),
    ],
)
def test_what_is_not_shared_is_named(changed: dict[str, Any], setting: str) -> None:
    with pytest.raises(CliError, match=setting):
        check_replicas(Settings(**SHARED | changed))
    check_replicas(Settings(**SHARED | changed | {"replicas": 1}))


def test_replicas_that_share_everything_start() -> None:
    check_replicas(Settings(**SHARED))
    check_replicas(Settings(**SHARED | {"blob_url": "file:///mnt/blobs", "blob_folder_is_shared": True}))
