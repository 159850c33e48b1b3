"""What a process is to the rows of the metadata: an owner of its own, and the same one after its death."""

from app.backups.rows import BackupSession
from app.db import Database
from app.kit.http.first import ALONE, Part
from app.kit.http.handing_over import is_of_first
from app.kit.ids import new_id
from app.main import create_app
from app.settings import Settings


def test_each_process_owns_its_requests_and_the_next_of_its_number_takes_them_up() -> None:
    """A request with an Idempotency-Key that waits is gone on with by its owner at once: it must be dead."""
    instance = new_id("ins")
    owners = [part.owner(instance) for part in (ALONE, Part(1), Part(2), Part(64))]
    assert owners[0] == instance
    assert len(set(owners)) == len(owners)
    most = BackupSession.__table__.c.owner.type.length  # type: ignore[attr-defined]
    assert all(len(owner) <= most for owner in owners)
    app = create_app(Settings(), Database("sqlite://"), instance_id=instance, part=Part(2))
    assert (app.state.owner, app.state.instance_id) == (owners[2], instance)


def test_what_the_first_process_answers() -> None:
    paths = ["/readyz", "/metrics", "/v1/spark-pool", "/v1/spark-pool:drain"]
    others = ["/livez", "/v1/stores", "/metrics/", "/v1/spark-pools", "/console/", "/v1/spark"]
    assert [path for path in [*paths, *others] if is_of_first(path)] == paths
