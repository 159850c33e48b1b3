"""What a running JE adds to the safe rule: every refusal and every rule of facts je-live."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark.erase.calls.calls import Mode, PlanCall, RefusalCode, RoundCall, Step
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import (
    EnvironmentUnreadable,
    LiveBackupUnknown,
    LiveReplicated,
    LogChainBroken,
    LogChecksumWrong,
    LogCorrupt,
    LogRefused,
    NoCheckpoint,
    OwnEraserOn,
    RestoreRequired,
)
from spark.erase.live.live import check_live_round, plan_live
from spark.erase.plan.plan import Plan, plan_erasure
from spark.erase.reading.properties import properties
from spark.erase.reasons import Cause, Reason
from spark.erase.unit import do
from spark.formats.je.log import EntryType, lsn_file
from spark.targets.files.control_file import ControlFile
from tests.spark.erase.conftest import Sample
from tests.spark.erase.hands_at_work import EPOCH, Traced, claim, planned_bytes, rounds_of
from tests.spark.erase.live_environments import (
    CREATED_MS,
    MINUTE_MS,
    NO_GRACE,
    begin,
    held,
    plan,
    planned,
    write_environment,
    write_versions,
)

NODES = (EntryType.IN, EntryType.BIN, EntryType.BIN_DELTA)
DAY_MS = 24 * 60 * MINUTE_MS


def kept(found: Plan, cause: Cause) -> int:
    """How many entries of files that are erased from stay for a cause."""
    return sum(file.kept[cause].entries for file in found.files if cause in file.kept and not file.causes)


def test_quiet_log_is_planned_as_in_closed_mode_but_for_jes_own_databases(
    samples: dict[str, Sample],
) -> None:
    ours, closed = plan(samples["closed"].path), plan_erasure(samples["closed"].path, PlanRequest())
    left = planned(closed) - planned(ours)
    internal = sum(
        file.kept[Cause.INTERNAL_DATABASE].entries
        for file in ours.files
        if Cause.INTERNAL_DATABASE in file.kept
    )
    assert (len(planned(closed)), len(planned(ours) - planned(closed))) == (8725, 0)
    assert 0 < len(left) <= internal
    assert not ours.nodes_wait


# Refusals.


def test_replicated_environment_is_refused(samples: dict[str, Sample]) -> None:
    with pytest.raises(LiveReplicated) as refused:
        plan(samples["replicated"].path)
    assert (refused.value.file, refused.value.offset) == ("00000000.jdb", 1685)


@pytest.mark.parametrize(
    ("kind", "item", "flags"),
    [
        (EntryType.ROLLBACK_START, bytes(4), 0),
        (EntryType.ROLLBACK_END, bytes(3), 0),
        (EntryType.MATCHPOINT, bytes(2), 0),
        (EntryType.TRACE, bytes(2), 0x10),
    ],
)
def test_trace_of_replication_is_refused(tmp_path: Path, kind: EntryType, item: bytes, flags: int) -> None:
    environment = write_environment(tmp_path)
    lsn = environment.log.append(kind, item, flags=flags)
    environment.close()
    with pytest.raises(LiveReplicated) as refused:
        plan(tmp_path)
    assert refused.value.offset == lsn & 0xFFFFFFFF


def test_unfinished_network_restore_is_refused(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    (tmp_path / "7fffffff.jdb").touch()
    with pytest.raises(RestoreRequired):
        plan(tmp_path)
    refusal = check_live_round(tmp_path)
    assert refusal is not None
    assert (refusal.code, refusal.ref) == (RefusalCode.LOG_REFUSED, "RESTORE_REQUIRED")


@pytest.mark.parametrize(
    "text",
    [
        "je.env.runEraser=true\n",
        "# off\n je.env.runEraser : TRUE ",
        "je.env.\\\n   runEraser true",
        "je.env.runEraser=false\r\nje.env.run\\u0045raser = true\r\n",
        "je.env.runEraser=yes",
    ],
)
def test_jes_own_eraser_switched_on_is_refused(tmp_path: Path, text: str) -> None:
    write_environment(tmp_path).close()
    (tmp_path / "je.properties").write_text(text)
    with pytest.raises(OwnEraserOn):
        plan(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#je.env.runEraser=true",
        "je.env.runEraser=true\nje.env.runEraser=false",
        "a=b\\\nje.env.runEraser=true",
    ],
)
def test_jes_own_eraser_off_is_no_refusal(tmp_path: Path, text: str) -> None:
    write_environment(tmp_path).close()
    (tmp_path / "je.properties").write_text(text)
    assert planned(plan(tmp_path))


def test_properties_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    (tmp_path / "je.properties").mkdir()
    with pytest.raises(EnvironmentUnreadable):
        plan(tmp_path)


def test_properties_are_read_as_java_does() -> None:
    text = "a\\ b\\:c = d \\\n  e\\te\n! no\nempty\nk==v\n\\u0041=\\\\\n"
    assert properties(text) == {"a b:c": "d e\te", "empty": "", "k": "=v", "A": "\\"}


def test_young_backup_of_somebody_else_is_refused(tmp_path: Path) -> None:
    environment = write_environment(tmp_path)
    lsn = environment.mark_immutable()
    environment.close()
    terms = replace(NO_GRACE, now_ms=environment.log.now_ms + DAY_MS - MINUTE_MS, backup_grace_ms=DAY_MS)
    with pytest.raises(LiveBackupUnknown) as refused:
        plan(tmp_path, terms)
    assert refused.value.file == f"{lsn_file(lsn):08x}.jdb"
    assert planned(plan(tmp_path, replace(terms, now_ms=environment.log.now_ms + DAY_MS)))
    ours = (environment.log.now_ms - MINUTE_MS, environment.log.now_ms)
    assert planned(plan(tmp_path, replace(terms, backups_ms=(ours,))))
    before = (CREATED_MS, environment.log.now_ms - MINUTE_MS)
    with pytest.raises(LiveBackupUnknown):
        plan(tmp_path, replace(terms, backups_ms=(before,)))


def test_backup_marker_at_the_very_end_counts_as_written_now(tmp_path: Path) -> None:
    environment = write_environment(tmp_path)
    environment.log.append(EntryType.IMMUTABLE_FILE, b"*")
    environment.crash()
    with pytest.raises(LiveBackupUnknown):
        plan(tmp_path, replace(NO_GRACE, now_ms=CREATED_MS + 1_000 * DAY_MS, backup_grace_ms=DAY_MS))


@pytest.mark.parametrize(
    ("wound", "kind"),
    [
        (lambda data: data[:900] + bytes([data[900] ^ 1]) + data[901:], LogChecksumWrong),
        (lambda data: data[:-20], LogCorrupt),
        (lambda data: data + data[-30:], LogCorrupt),
        (lambda data: data + bytes(20), LogCorrupt),
    ],
)
def test_sealed_file_that_is_not_whole_is_refused(
    tmp_path: Path, wound: Callable[[bytes], bytes], kind: type[LogRefused]
) -> None:
    write_environment(tmp_path).close()
    path = tmp_path / "00000001.jdb"
    path.write_bytes(wound(path.read_bytes()))
    with pytest.raises(kind) as refused:
        plan(tmp_path)
    assert refused.value.file == path.name


def test_sealed_file_that_lost_its_last_entry_is_refused(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    path = tmp_path / "00000001.jdb"
    data, following = path.read_bytes(), (tmp_path / "00000002.jdb").read_bytes()
    (last,) = struct.unpack_from("<q", following, 26)
    path.write_bytes(data[:last])
    with pytest.raises(LogChainBroken) as refused:
        plan(tmp_path)
    assert refused.value.file == "00000002.jdb"


# Locks.


def test_free_environment_of_a_live_store_is_planned_without_a_lock_of_je(tmp_path: Path) -> None:
    """JE asks for its lock once: whoever holds it at that moment keeps the application from starting."""
    write_environment(tmp_path).close()
    (tmp_path / "je.lck").unlink(missing_ok=True)
    answer = do(PlanCall(str(tmp_path), PlanRequest(), NO_GRACE))
    assert (answer.mode, answer.refusal) == (Mode.LIVE, None)
    assert any(file.entry_count for file in answer.files)
    assert not (tmp_path / "je.lck").exists()


def test_environment_with_a_writer_is_planned_live(tmp_path: Path) -> None:
    write_environment(tmp_path).crash()
    with held(tmp_path, 0, exclusive=True):
        answer = do(PlanCall(str(tmp_path), PlanRequest(), NO_GRACE))
        assert (answer.mode, answer.refusal) == (Mode.LIVE, None)
        assert any(file.entry_count for file in answer.files)
        closed = do(PlanCall(str(tmp_path), PlanRequest()))
    assert closed.refusal is not None
    assert closed.refusal.code == RefusalCode.ENVIRONMENT_IN_USE


def test_reader_alone_is_waited_for(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    with held(tmp_path, 1, exclusive=False):
        answer = do(PlanCall(str(tmp_path), PlanRequest(), NO_GRACE))
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.READER_PRESENT


def test_reader_beside_the_writer_refuses_plan_and_round(tmp_path: Path) -> None:
    write_environment(tmp_path).crash()
    claim(tmp_path)
    with held(tmp_path, 0, exclusive=True):
        answer = do(PlanCall(str(tmp_path), PlanRequest(), NO_GRACE))
        file = next(each for each in answer.files if each.entry_count)
        call = next(rounds_of(tmp_path, file, mode=Mode.LIVE))
        layer = Traced()
        with held(tmp_path, 1, exclusive=False):
            refused = do(PlanCall(str(tmp_path), PlanRequest(), NO_GRACE))
            stopped = do(call, layer=layer)
        done = do(call, layer=Traced())
    for each in (refused.refusal, stopped.refusal):
        assert each is not None
        assert each.code == RefusalCode.READER_PRESENT
    assert (refused.files, stopped.step, layer.calls) == ((), Step.LOCK, 0)
    assert (done.refusal, done.step) == (None, Step.DONE)


def test_cleaner_at_work_is_no_reader(tmp_path: Path) -> None:
    write_environment(tmp_path).crash()
    with held(tmp_path, 1, exclusive=True):
        assert check_live_round(tmp_path) is None


def test_live_round_writes_the_planned_bytes_and_nothing_else(tmp_path: Path) -> None:
    write_environment(tmp_path).crash()
    claim(tmp_path)
    with held(tmp_path, 0, exclusive=True):
        answer = do(PlanCall(str(tmp_path), PlanRequest(), NO_GRACE))
        file = next(each for each in answer.files if each.entry_count)
        layer = Traced()
        (call,) = rounds_of(tmp_path, file, mode=answer.mode)
        assert isinstance(call, RoundCall)
        assert do(call, layer=layer).refusal is None
    written = [(offset, offset + len(data)) for what, _, offset, data in layer.seen if what == "write"]
    entries = list(planned_bytes(file))
    types = [(kind, kind + 1) for kind, _, _ in entries]
    items = [(first, end) for _, first, end in entries if end > first]
    assert written == [(0, 1), *types, *items]
    with ControlFile.open(tmp_path, create=False) as control:
        assert control.read().epoch == EPOCH


# Checkpoints, transactions, databases.


def test_checkpoint_behind_a_bad_checksum_is_not_used(tmp_path: Path) -> None:
    environment = write_environment(tmp_path)
    environment.crash()
    newest = plan(tmp_path).checkpoint
    path = tmp_path / f"{newest.lsn >> 32:08x}.jdb"
    data = bytearray(path.read_bytes())
    data[(newest.lsn & 0xFFFFFFFF) + 16] ^= 1
    path.write_bytes(data)
    assert plan(tmp_path).checkpoint.end.id == newest.end.id - 1


def test_checkpoint_whose_files_are_not_all_there_is_not_used(tmp_path: Path) -> None:
    environment = write_environment(tmp_path)
    txn = environment.begin()
    environment.put(txn, "records", b"key-000", b"of a long transaction that holds A back")
    first = environment.log.number
    # Nodes of nothing lie there: only the checkpoint's own demand for the file tells.
    while environment.log.number < first + 3:
        environment.trace("x" * 500)
    environment.checkpoint()
    environment.crash()
    newest = plan(tmp_path).checkpoint
    assert newest.first_active >> 32 == first
    (tmp_path / f"{first + 2:08x}.jdb").unlink()
    assert plan(tmp_path).checkpoint.end.id == newest.end.id - 1


def test_log_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    environment = begin(tmp_path, file_bytes=100_000)
    environment.crash()
    path = tmp_path / "00000000.jdb"
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(NoCheckpoint):
        plan(tmp_path)


def test_nodes_wait_until_a_later_checkpoint_has_ended_long_after(tmp_path: Path) -> None:
    environment = write_environment(tmp_path, checkpoints=6)
    environment.crash()
    at_once = plan(tmp_path)
    later = plan(tmp_path, replace(NO_GRACE, node_grace_ms=3 * MINUTE_MS))
    never = plan(tmp_path, replace(NO_GRACE, node_grace_ms=DAY_MS))
    assert planned(at_once, *NODES) > planned(later, *NODES) > planned(never, *NODES) == set()
    assert (later.nodes_wait, never.nodes_wait) == (True, True)
    leaves = [planned(each) - planned(each, *NODES) for each in (at_once, later, never)]
    assert leaves[0] == leaves[1] == leaves[2] != set()
    waiting = sum(
        file.kept[Cause.NODES_WAIT].entries for file in later.files if Cause.NODES_WAIT in file.kept
    )
    closed = plan_erasure(tmp_path, PlanRequest())
    internal = planned(closed, *NODES) - planned(later, *NODES)
    assert 0 < waiting <= len(internal)


def test_nodes_of_a_removed_database_wait_too(tmp_path: Path) -> None:
    environment = write_environment(tmp_path, checkpoints=2)
    environment.create("gone")
    write_versions(environment, range(25), name="gone")
    environment.checkpoint()
    txn = environment.begin()
    environment.drop(txn, "gone")
    environment.commit(txn)
    for _ in range(3):
        write_versions(environment, range(25))
        environment.log.now_ms += MINUTE_MS
        environment.checkpoint()
    environment.crash()
    found = plan(tmp_path, replace(NO_GRACE, node_grace_ms=DAY_MS))
    reasons = {Reason.DELETED_DATABASE for file in found.files if Reason.DELETED_DATABASE in file.erased}
    assert reasons == {Reason.DELETED_DATABASE}
    assert planned(found, *NODES) == set()
    assert found.nodes_wait


def test_leaf_whose_transaction_ended_behind_the_first_active_lsn_stays(tmp_path: Path) -> None:
    environment = write_environment(tmp_path)
    ended, aborted, going_on = (environment.begin() for _ in range(3))
    # Embedded, and so obsolete from the start; the other one will be aborted.
    settled = environment.put(None, "records", b"settled", b"short")
    lsns = {
        environment.put(ended, "records", b"committed", b"short"),
        environment.put(aborted, "records", b"aborted", b"short"),
    }
    write_versions(environment, range(100))
    first_active = environment.put(going_on, "records", b"open", b"short")
    environment.commit(ended)
    environment.abort(aborted)
    environment.checkpoint()
    environment.crash()
    found, closed = plan(tmp_path), plan_erasure(tmp_path, PlanRequest())
    assert found.checkpoint.first_active == first_active > max(lsns)
    assert planned(closed) >= lsns | {settled}
    assert planned(found) & (lsns | {settled}) == {settled}
    assert (
        sum(file.kept[Cause.UNSETTLED].entries for file in found.files if Cause.UNSETTLED in file.kept) == 2
    )


def test_files_with_a_comparators_records_stay_as_they_are(samples: dict[str, Sample]) -> None:
    found = plan(samples["comparator"].path)
    assert planned(found) == set()
    assert any(Cause.COMPARATOR in file.causes for file in found.files)


def test_expired_record_stays_whoever_asks(tmp_path: Path) -> None:
    environment = begin(tmp_path)
    for key in range(40):
        environment.put(None, "records", b"expiring-%03d" % key, b"value %030d" % key, expiration=100)
    environment.checkpoint()
    for _ in range(3):
        write_versions(environment, range(25))
        environment.checkpoint()
    environment.crash()
    request = PlanRequest(now_ms=CREATED_MS, erase_expired=True)
    found, _ = plan_live(tmp_path, request, NO_GRACE)
    assert all(Reason.EXPIRED not in file.erased for file in found.files)
