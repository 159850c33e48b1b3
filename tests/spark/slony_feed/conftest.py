"""Places for replicas, as the tests of replication have them."""

import pytest

from tests.conftest import need_slony
from tests.spark.replication.conftest import (  # noqa: F401
    module_database,
    place,
    postgresql_place,
    sqlite_place,
)


@pytest.fixture(scope="session")
def need_slony_programs() -> None:
    """Skip where the programs of Slony-I are not installed."""
    need_slony()
