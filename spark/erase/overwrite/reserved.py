"""Deleting a file that JE has put aside: in CLOSED mode, under the same locks as a round."""

from contextlib import AbstractContextManager
from pathlib import Path

from spark.erase.calls.calls import DeleteReservedAnswer, DeleteReservedCall, Mode, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.overwrite.file_layer import DIRECTORY_FLAGS, WRITE_FLAGS, Clock, FileLayer, OpenFile, Tally
from spark.erase.overwrite.locking import Claim, claimed_file, lock_written
from spark.erase.overwrite.planned_file import opened_as_planned, opened_file
from spark.erase.overwrite.witness import check_witness
from spark.targets.files.log_place import log_path


def delete_reserved(call: DeleteReservedCall, *, layer: FileLayer, clock: Clock) -> DeleteReservedAnswer:
    """Rename a file to `.del` as JE does, and unlink it; the directory is synced after each.

    A crash between the two leaves a `.del`, which JE does not read, with all that was in the file: the same
    call unlinks it. Until then the file itself is locked too, by whichever of its names.
    """
    tally = Tally(clock)
    directory = Path(call.directory)
    path = log_path(directory, call.number)
    try:
        with (
            claimed_file(directory, call.number, epoch=call.epoch, mode=Mode.CLOSED) as claim,
            opened_file(layer, tally, path.parent, DIRECTORY_FLAGS) as folder,
            _opened(call, path, layer, tally) as file,
        ):
            lock_written(claim, directory, file)
            if file.name == path.name:
                _put_aside(call, path, claim, folder)
            claim.check_stop()
            _unlink(folder, path, layer)
    except Refused as refused:
        return DeleteReservedAnswer(costs=tally.costs(), refusal=refused.refusal)
    return DeleteReservedAnswer(deleted=True, costs=tally.costs())


def _opened(
    call: DeleteReservedCall, path: Path, layer: FileLayer, tally: Tally
) -> AbstractContextManager[OpenFile]:
    """Open the file by the name that it has now."""
    if _is_aside(call, path, layer):
        return opened_file(layer, tally, path.with_suffix(".del"), WRITE_FLAGS)
    return opened_as_planned(
        layer,
        tally,
        Path(call.directory),
        call.number,
        identity=call.identity,
        flags=WRITE_FLAGS,
        with_mtime=True,
    )


def _is_aside(call: DeleteReservedCall, path: Path, layer: FileLayer) -> bool:
    """Whether we have renamed the file before; JE may do so too, and be told to keep it."""
    if not call.was_begun or path.exists():
        return False
    try:
        found = layer.stat(path.with_suffix(".del"))
    except OSError:
        return False
    planned = call.identity
    return (found.st_dev, found.st_ino, found.st_size) == (planned.device, planned.inode, planned.size)


def _put_aside(call: DeleteReservedCall, path: Path, claim: Claim, folder: OpenFile) -> None:
    if call.witness is not None:
        check_witness(folder.layer, Path(call.directory), call.witness)
    claim.check_stop()
    try:
        folder.layer.rename(path, path.with_suffix(".del"))
    except OSError as error:
        raise Refused.of_name(error, "rename", file=path.name) from error
    folder.fsync()


def _unlink(folder: OpenFile, path: Path, layer: FileLayer) -> None:
    aside = path.with_suffix(".del")
    try:
        layer.unlink(aside)
    except OSError as error:
        code = RefusalCode.UNPROVEN
        detail = f"it is {aside.name} now; unlink: {Refused.reason(error)}"
        raise Refused(code, detail, ref=Refused.errno_name(error), file=path.name) from error
    folder.fsync()
