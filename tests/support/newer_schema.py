"""Migrations of the next release and of the previous one: copies of ours, with one more or one less."""

import shutil
from pathlib import Path

from loragate.adapter_store.database.schema import OUR_MIGRATIONS, newest_revision

NEXT = "9998"
_SCRIPT = """
import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{down}"
{declared}

def upgrade():
    {up}


def downgrade():
    {back}
"""


def with_expansion(folder: Path) -> str:
    """Return our migrations and one that adds a column and a table: code of our release can run on the result."""
    return _with(
        folder,
        up='op.add_column("tenants", sa.Column("motto", sa.String(64), nullable=True, server_default="none"))\n'
        '    op.create_table("mottos", sa.Column("id", sa.Integer, primary_key=True))',
        back='op.drop_table("mottos")\n    op.drop_column("tenants", "motto")',
    )


def with_contraction(folder: Path) -> str:
    """Return our migrations and one that drops a column that code of our release uses."""
    return _with(
        folder,
        up='op.drop_column("api_keys", "name")',
        back='op.add_column("api_keys", sa.Column("name", sa.String(255), nullable=False, server_default=""))',
        declared=f'compatible_from = "{NEXT}"\n',
    )


def without_newest(folder: Path) -> str:
    """Return our migrations without the newest one, as the previous release has them."""
    _copy(folder)
    [newest] = (folder / "versions").glob(f"r{newest_revision()}_*.py")
    newest.unlink()
    return str(folder)


def _with(folder: Path, *, up: str, back: str, declared: str = "") -> str:
    _copy(folder)
    script = _SCRIPT.format(revision=NEXT, down=newest_revision(), up=up, back=back, declared=declared)
    (folder / "versions" / f"r{NEXT}_next.py").write_text(script)
    return str(folder)


def _copy(folder: Path) -> None:
    shutil.copytree(OUR_MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
