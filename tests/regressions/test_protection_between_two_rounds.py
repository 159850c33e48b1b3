"""Between two rounds of a file a backup was promised it, and then a restore tool put an older copy of the
control file over the real one, in place: same inode, same epoch, without the backup's range. The next round
asked only the control file, and wrote to a protected file.
"""

from app.protection.rows import Protection
from spark.erase.calls.calls import RoundCall
from tests.app.erase.conftest import erasers, log  # noqa: F401 -- fixtures
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog


def test_file_that_was_protected_after_a_round_gets_no_further_one(
    erasers: Erasers,  # noqa: F811
    log: FakeLog,  # noqa: F811
) -> None:
    made: list[str] = []

    def protect(call: RoundCall) -> None:
        if call.number == 0 and not made:
            made.append(erasers.protect(0))

    log.on_round = protect
    erasers.begin()
    erasers.run()
    assert len(log.rounds_of(0)) == 1
    assert erasers.states() == {0: "IN_WORK", 1: "ERASED", 2: "NOT_SELECTED"}
    assert erasers.waiting_kinds() == ["BACKUP"]
    with erasers.database.reading() as db:
        assert db.get_one(Protection, made[0]).state == "ACTIVE"
    erasers.unprotect(made[0])
    erasers.run(until_s=3600)
    assert len(log.rounds_of(0)) == 2
    assert erasers.cycle().state == "COMPLETE"
