"""A reserved file was renamed to `.del`, and the service died before it unlinked it. The next attempt found
no log file of that name, called it deleted by somebody else, and left all of its bytes in the directory.
"""

from dataclasses import replace
from pathlib import Path

from spark.erase.calls.calls import DeleteReservedCall, RefusalCode
from spark.erase.overwrite.reserved import delete_reserved
from tests.regressions.environments import write_history
from tests.spark.erase.hands_at_work import EPOCH, Killed, Traced, claim, plan


class Dying(Traced):
    """Ends the writer between the renaming and the unlinking."""

    def unlink(self, path: Path) -> None:
        raise Killed


def test_renamed_file_is_unlinked_by_the_same_call(tmp_path: Path) -> None:
    write_history(tmp_path)
    claim(tmp_path)
    file = plan(tmp_path).files[1]
    call = DeleteReservedCall(str(tmp_path), 1, EPOCH, file.identity)
    try:
        delete_reserved(call, layer=Dying(), clock=lambda: 0.0)
    except Killed:
        assert (tmp_path / "00000001.del").exists()
    again = replace(call, was_begun=True)
    answer = delete_reserved(again, layer=Traced(), clock=lambda: 0.0)
    assert (answer.deleted, answer.refusal) == (True, None)
    assert list(tmp_path.glob("00000001.*")) == []


def test_file_that_je_has_put_aside_is_left_alone(tmp_path: Path) -> None:
    write_history(tmp_path)
    claim(tmp_path)
    file = plan(tmp_path).files[1]
    (tmp_path / "00000001.jdb").rename(tmp_path / "00000001.del")
    call = DeleteReservedCall(str(tmp_path), 1, EPOCH, file.identity)
    answer = delete_reserved(call, layer=Traced(), clock=lambda: 0.0)
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.ALREADY_DELETED
    assert (tmp_path / "00000001.del").exists()


def test_file_that_was_put_back_meanwhile_is_another_one(tmp_path: Path) -> None:
    write_history(tmp_path)
    claim(tmp_path)
    file = plan(tmp_path).files[1]
    (tmp_path / "00000001.jdb").rename(tmp_path / "00000001.del")
    (tmp_path / "00000001.jdb").write_bytes((tmp_path / "00000001.del").read_bytes())
    call = DeleteReservedCall(str(tmp_path), 1, EPOCH, file.identity, was_begun=True)
    answer = delete_reserved(call, layer=Traced(), clock=lambda: 0.0)
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.FILE_REPLACED
    assert (tmp_path / "00000001.jdb").exists()
