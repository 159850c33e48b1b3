"""What stays readable although a cycle has done all that it may; every certificate says it.

Source: facts je-safe-rule, What stays readable even so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

LOCK_FILES = frozenset({"je.lck"})
ALWAYS = (
    ("EMBEDDED_IN_LIVE_NODES", "Keys, and values that JE embeds, in slots of live BINs."),
    ("SEPARATORS", "Keys of dead records that part the slots of live upper nodes."),
    ("ABORT_DATA", "The version before, inside the abort data of live LNs."),
    ("BEFORE_IMAGES", "Before-images (entry types 44 and 45) that are not obsolete themselves."),
    ("TRACE_ENTRIES", "Texts that JE logs about itself (Trace)."),
    (
        "COPIES_OF_THE_MEDIUM",
        "Copies that the file system or the device keeps: snapshots, reflinks, remapped blocks of an SSD.",
    ),
    ("COPIES_ELSEWHERE", "Backups, replicas and exports that were made before."),
)
OF_EXTINCT = (
    "Of extinct records: keys, and embedded values, in slots of live nodes until JE takes the slots out; keys"
    " that part the slots of upper nodes; versions in the abort data of live LNs."
)


def residue(
    content: Mapping[str, Any], others: Sequence[str], replaced: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """List what stays, each with the figures that are known.

    Args:
        content: the certificate so far.
        others: names of files beside the log.
        replaced: names of log files that are others by now than those that were proved.
    """
    found: list[dict[str, Any]] = []
    if replaced:
        text = "Files that are others by now than those that were proved: the log was restored meanwhile."
        found.append({"code": "FILE_REPLACED", "what": text, "files": list(replaced)})
    for cause, text in (
        ("RECOVERY_INTERVAL", "Everything in the files from the checkpoint's first active entry on."),
        ("TAIL_OF_LOG", "Everything in the last file, which is being written."),
        ("VLSN_INDEX", "Everything in files that replication may still read."),
        ("NO_VLSN", "Everything in files that the VLSN index cannot be truncated away from."),
        ("TOO_YOUNG", "Files that were younger than the cycle's cut-off."),
    ):
        names = _files_with(content["files"], cause)
        if names:
            found.append({"code": cause, "what": text, "files": names})
    held = content["protections"]["files_held_at_the_end"]
    if held:
        found.append(
            {"code": "PROTECTED", "what": "Files that a backup or another reader held.", "files": held}
        )
    remaining = [each["name"] for each in content["files"] if each["state"] in ("PENDING", "IN_WORK")]
    if remaining:
        found.append(
            {"code": "REMAINING", "what": "Files that the cycle did not finish.", "files": remaining}
        )
    kept = _kept(content["files"])
    if kept:
        text = "Entries that have a reason to go and were kept, by cause: entries, bytes of their items."
        found.append({"code": "KEPT", "what": text, "entries": kept})
    found.extend({"code": code, "what": text} for code, text in ALWAYS)
    named = [each["id"] for each in content["extinctions"]]
    if named:
        found.append({"code": "EXTINCT_RECORDS", "what": OF_EXTINCT, "extinctions": named})
    written = [name for name in others if name not in LOCK_FILES]
    if written:
        text = "Files beside the log that may hold keys or values."
        found.append({"code": "OTHER_FILES", "what": text, "files": written})
    if content["plan"] is not None and content["plan"]["nodes_wait"]:
        text = "Old tree nodes: beside a running process they wait for a later checkpoint."
        found.append({"code": "OLD_NODES", "what": text})
    return found


def _files_with(files: Sequence[Mapping[str, Any]], cause: str) -> list[str]:
    return [
        each["name"] for each in files if any(item["cause"] == cause for item in each["not_erased_because"])
    ]


def _kept(files: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    sums: dict[str, list[int]] = {}
    for each in files:
        for cause, (entries, item_bytes) in each["kept"].items():
            before = sums.get(cause, [0, 0])
            sums[cause] = [before[0] + entries, before[1] + item_bytes]
    return dict(sorted(sums.items()))
