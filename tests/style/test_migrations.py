"""One set of migrations leads an empty database, SQLite or PostgreSQL, to what the models say."""

import importlib
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from migrations.revisions import head_revision, revisions
from tests.style.source_files import ROOT


def _metadata() -> sa.MetaData:
    importlib.import_module("app.tables")
    sqlmodel: Any = importlib.import_module("sqlmodel")
    metadata: sa.MetaData = sqlmodel.SQLModel.metadata
    return metadata


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    return ScriptDirectory.from_config(config)


def _upgrade(connection: sa.Connection) -> None:
    """Run every revision from empty to head, without the environment script: only revisions are looked at."""
    scripts = _scripts()

    def revisions(current: Any, _context: MigrationContext) -> Any:
        return scripts._upgrade_revs("head", current)

    with EnvironmentContext(Config(), scripts, fn=revisions) as environment:
        environment.configure(connection=connection, target_metadata=_metadata())
        environment.run_migrations()


def _differences(connection: sa.Connection) -> list[Any]:
    options = {"compare_type": True, "compare_server_default": True}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), _metadata()))


def _migrated_differences(url: str) -> list[Any]:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        _upgrade(connection)
        assert MigrationContext.configure(connection).get_current_heads(), "no revision was applied"
        return _differences(connection)


def test_revisions_have_one_head() -> None:
    assert len(_scripts().get_heads()) == 1


def test_revisions_that_files_are_named_by_are_those_of_alembic() -> None:
    scripts = _scripts()
    assert list(revisions()) == [script.revision for script in scripts.walk_revisions()][::-1]
    assert head_revision() == scripts.get_current_head()


def test_migrated_sqlite_equals_the_models(tmp_path: Path) -> None:
    assert _migrated_differences(f"sqlite:///{tmp_path / 'metadata.db'}") == []


def test_migrated_postgresql_equals_the_models(postgresql_url: str) -> None:
    assert _migrated_differences(postgresql_url) == []


def test_column_that_only_the_migrations_know_is_found(tmp_path: Path) -> None:
    # The comparison itself: a check that could not fail would prove nothing.
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'metadata.db'}", poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        _upgrade(connection)
        table = next(iter(_metadata().sorted_tables)).name
        connection.exec_driver_sql(f'alter table "{table}" add column "surplus" integer')
        found = _differences(connection)
    assert [(row[0], row[3].name) for row in found] == [("remove_column", "surplus")]
