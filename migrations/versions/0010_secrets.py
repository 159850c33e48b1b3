"""Named secrets; what stores and agreements named themselves becomes one each, bound to it and its host.

A reference that is no place for secrets (another variable than LETHE_SECRET_*, a file outside of
LETHE_SECRETS_DIR) is registered as it was: it is not read any more, and whoever needs it is told by which
command an admin mends it.

Revision: 0010
Revises: 0009
"""

from datetime import UTC, datetime
from urllib.parse import urlsplit

import sqlalchemy as sa
from alembic import op
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

import app.db

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SCHEME = "secret:"
PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "http": 80, "https": 443}
NOWHERE = "nowhere.invalid"

_secrets = sa.table(
    "secrets",
    sa.column("name", sa.String),
    sa.column("reference", sa.String),
    sa.column("stores", sa.JSON),
    sa.column("labels", sa.JSON),
    sa.column("hosts", sa.JSON),
    sa.column("clear_text_on_loopback", sa.Boolean),
    sa.column("version", sa.Integer),
    sa.column("created_at", app.db.UtcDateTime(timezone=True)),
    sa.column("updated_at", app.db.UtcDateTime(timezone=True)),
)
_stores = sa.table(
    "stores", sa.column("id", sa.String), sa.column("url", sa.String), sa.column("password", sa.String)
)
_agreements = sa.table(
    "agreements",
    sa.column("id", sa.String),
    sa.column("store", sa.String),
    sa.column("consumer_url", sa.String),
    sa.column("consumer_token", sa.String),
)


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("reference", sa.String(length=1010), nullable=False),
        sa.Column("stores", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("labels", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("hosts", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("clear_text_on_loopback", sa.Boolean(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    db = op.get_bind()
    stores = db.execute(sa.select(_stores).where(_stores.c.password.is_not(None))).all()
    for store in stores:
        name = f"store-{store.id}"
        _register(name, store.password, store.id, _host_of_target(store.url or ""))
        db.execute(_stores.update().where(_stores.c.id == store.id).values(password=SCHEME + name))
    for agreement in db.execute(sa.select(_agreements)).all():
        name = f"agreement-{agreement.id.lower()}"
        _register(name, agreement.consumer_token, agreement.store, _host_of_peer(agreement.consumer_url))
        changed = _agreements.update().where(_agreements.c.id == agreement.id)
        db.execute(changed.values(consumer_token=SCHEME + name))


def downgrade() -> None:
    db = op.get_bind()
    for table, column in ((_stores, _stores.c.password), (_agreements, _agreements.c.consumer_token)):
        for secret in db.execute(sa.select(_secrets)).all():
            named = column == SCHEME + secret.name
            db.execute(table.update().where(named).values({column.name: secret.reference}))
    op.drop_table("secrets")


def _register(name: str, reference: str, store: str, host: str) -> None:
    now = datetime.now(UTC)
    row = {
        "name": name,
        "reference": reference,
        "stores": [store],
        "labels": {},
        "hosts": [host],
        "clear_text_on_loopback": False,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }
    op.get_bind().execute(_secrets.insert().values(row))


def _host_of_target(url: str) -> str:
    """The one place that a URL leads to, as a list of hosts has it."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return NOWHERE
    dialect = parsed.get_backend_name()
    sockets = [parsed.query.get("host"), parsed.query.get("unix_socket")]
    if isinstance(sockets[1], str):
        return sockets[1].rpartition("/")[0] or "/"
    if parsed.host:
        return _host(parsed.host, parsed.port or PORTS.get(dialect, 0))
    if isinstance(sockets[0], str) and dialect == "postgresql":
        return sockets[0]
    return {"postgresql": "socket", "mysql": "localhost:3306", "mariadb": "localhost:3306"}.get(
        dialect, NOWHERE
    )


def _host_of_peer(url: str) -> str:
    try:
        parts = urlsplit(url)
        return _host(parts.hostname or NOWHERE, parts.port or PORTS.get(parts.scheme, 443))
    except ValueError:
        return NOWHERE


def _host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
