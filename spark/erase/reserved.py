"""Deleting a file that JE has put aside: in CLOSED mode, under the same locks as a round."""

from pathlib import Path

from spark.erase.calls import DeleteReservedAnswer, DeleteReservedCall, Mode, RefusalCode
from spark.erase.file_layer import DIRECTORY_FLAGS, READ_FLAGS, Clock, FileLayer, OpenFile, Tally
from spark.erase.locking import Claim, claimed_file
from spark.erase.planned_file import opened_as_planned, opened_file
from spark.erase.refusing import Refused
from spark.erase.witness import check_witness
from spark.formats.je_log import file_name


def delete_reserved(call: DeleteReservedCall, *, layer: FileLayer, clock: Clock) -> DeleteReservedAnswer:
    """Rename a file to `.del` as JE does, and unlink it; the directory is synced after each.

    A crash between the two leaves a `.del`, which JE does not read.
    """
    tally = Tally(clock)
    directory = Path(call.directory)
    try:
        with (
            claimed_file(directory, call.number, epoch=call.epoch, mode=Mode.CLOSED) as claim,
            opened_as_planned(
                layer,
                tally,
                directory,
                call.number,
                identity=call.identity,
                flags=READ_FLAGS,
                with_mtime=True,
            ),
            opened_file(layer, tally, directory, DIRECTORY_FLAGS) as folder,
        ):
            if call.witness is not None:
                check_witness(layer, directory, call.witness)
            _delete(claim, folder, directory / file_name(call.number), layer)
    except Refused as refused:
        return DeleteReservedAnswer(costs=tally.costs(), refusal=refused.refusal)
    return DeleteReservedAnswer(deleted=True, costs=tally.costs())


def _delete(claim: Claim, folder: OpenFile, path: Path, layer: FileLayer) -> None:
    aside = path.with_suffix(".del")
    claim.check_stop()
    try:
        layer.rename(path, aside)
    except OSError as error:
        raise Refused.of_name(error, "rename", file=path.name) from error
    folder.fsync()
    try:
        layer.unlink(aside)
    except OSError as error:
        code = RefusalCode.UNPROVEN
        detail = f"it is {aside.name} now; unlink: {Refused.reason(error)}"
        raise Refused(code, detail, ref=Refused.errno_name(error), file=path.name) from error
    folder.fsync()
