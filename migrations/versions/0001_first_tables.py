"""first tables

Revision: 0001
Revises: nothing
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "archives",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("directory", sa.String(length=1000), nullable=False),
        sa.Column("instance", sa.String(length=40), nullable=False),
        sa.Column("resource", sa.String(length=200), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("counts", sa.String(length=10), nullable=False),
        sa.Column("expires_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    with op.batch_alter_table("archives", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_archives_expires_at"), ["expires_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_archives_store"), ["store"], unique=False)

    op.create_table(
        "audit_events",
        sa.Column("at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("token_id", sa.String(length=40), nullable=True),
        sa.Column("actor", sa.String(length=120), nullable=False),
        sa.Column("action", sa.String(length=80), nullable=False),
        sa.Column("subject_type", sa.String(length=40), nullable=False),
        sa.Column("subject_id", sa.String(length=80), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=True),
        sa.Column("request_id", sa.String(length=128), nullable=True),
        sa.Column("detail", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("audit_events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_events_at"), ["at"], unique=False)
        batch_op.create_index(batch_op.f("ix_audit_events_store"), ["store"], unique=False)

    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "global_parameters",
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("value", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("token_id", sa.String(length=40), nullable=False),
        sa.Column("method", sa.String(length=10), nullable=False),
        sa.Column("path", sa.String(length=300), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("body", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("token_id", "method", "path", "key"),
    )
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.create_index("ix_idempotency_keys_created_at", ["created_at"], unique=False)

    op.create_table(
        "instances",
        sa.Column("hostname", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("version", sa.String(length=40), nullable=False),
        sa.Column("labels", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("started_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("stopped_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "jobs",
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=True),
        sa.Column("parent_id", sa.String(length=40), nullable=True),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("requested_by", sa.String(length=120), nullable=False),
        sa.Column("engine", sa.String(length=10), nullable=False),
        sa.Column("params", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("started_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("finished_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("not_before", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("crash_count", sa.Integer(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("retried_from", sa.String(length=40), nullable=True),
        sa.Column("runs_on", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_class", sa.String(length=12), nullable=False),
        sa.Column("runs_on_key", sa.Text(), nullable=False),
        sa.Column("token_id", sa.String(length=40), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("fencing_token", sa.BigInteger(), nullable=False),
        sa.Column("lease_instance", sa.String(length=40), nullable=True),
        sa.Column("lease_expires_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("unproven", sa.Boolean(), nullable=False),
        sa.Column("wake_key", sa.String(length=450), nullable=True),
        sa.Column("claim_identity", sa.String(length=200), nullable=True),
        sa.Column("claim_resource", sa.String(length=200), nullable=True),
        sa.Column("waiting_on", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("throttle_requested", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("throttle_effective", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("throttle_cause", sa.String(length=40), nullable=True),
        sa.Column("progress", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("active_s", sa.Float(), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("subject", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index("ix_jobs_claim", ["state", "job_class", "not_before", "id"], unique=False)
        batch_op.create_index("ix_jobs_claim_identity", ["claim_identity", "claim_resource"], unique=False)
        batch_op.create_index("ix_jobs_finished_at", ["finished_at"], unique=False)
        batch_op.create_index("ix_jobs_parent_id", ["parent_id", "id"], unique=False)
        batch_op.create_index("ix_jobs_store_state", ["store", "state", "id"], unique=False)
        batch_op.create_index("ix_jobs_wake_key", ["wake_key"], unique=False)

    op.create_table(
        "stores",
        sa.Column("url", sa.String(length=1000), nullable=False),
        sa.Column("schema_name", sa.String(length=63), nullable=True),
        sa.Column("table_prefix", sa.String(length=30), nullable=False),
        sa.Column("time_zone", sa.String(length=64), nullable=False),
        sa.Column("labels", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("runs_on", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("parameters", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("id", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("password", sa.String(length=1010), nullable=True),
        sa.Column("limits", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("is_suspended", sa.Boolean(), nullable=False),
        sa.Column("suspended_until", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("suspended_reason", sa.String(length=500), nullable=True),
        sa.Column("target_identity", sa.String(length=200), nullable=True),
        sa.Column("target_parameters", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "tokens",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("scopes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("stores", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("expires_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(length=40), nullable=True),
        sa.Column("revoked_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret_sha256"),
    )
    op.create_table(
        "job_checkpoints",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("value", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "name"),
    )
    op.create_table(
        "job_claims",
        sa.Column("target_identity", sa.String(length=200), nullable=False),
        sa.Column("resource", sa.String(length=200), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("since", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("target_identity", "resource"),
    )
    with op.batch_alter_table("job_claims", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_job_claims_job_id"), ["job_id"], unique=False)

    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("type", sa.String(length=40), nullable=False),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    with op.batch_alter_table("job_events", schema=None) as batch_op:
        batch_op.create_index("ix_job_events_at", ["at"], unique=False)
    op.execute("insert into counters (name, value) values ('fencing_token', 0)")


def downgrade() -> None:
    with op.batch_alter_table("job_events", schema=None) as batch_op:
        batch_op.drop_index("ix_job_events_at")

    op.drop_table("job_events")
    with op.batch_alter_table("job_claims", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_job_claims_job_id"))

    op.drop_table("job_claims")
    op.drop_table("job_checkpoints")
    op.drop_table("tokens")
    op.drop_table("stores")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("ix_jobs_wake_key")
        batch_op.drop_index("ix_jobs_store_state")
        batch_op.drop_index("ix_jobs_parent_id")
        batch_op.drop_index("ix_jobs_finished_at")
        batch_op.drop_index("ix_jobs_claim_identity")
        batch_op.drop_index("ix_jobs_claim")

    op.drop_table("jobs")
    op.drop_table("instances")
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.drop_index("ix_idempotency_keys_created_at")

    op.drop_table("idempotency_keys")
    op.drop_table("global_parameters")
    op.drop_table("counters")
    with op.batch_alter_table("audit_events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_events_store"))
        batch_op.drop_index(batch_op.f("ix_audit_events_at"))

    op.drop_table("audit_events")
    with op.batch_alter_table("archives", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_archives_store"))
        batch_op.drop_index(batch_op.f("ix_archives_expires_at"))

    op.drop_table("archives")
