"""What a directory lies on, as the kernel's table of mounts tells it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
MOUNTS_MAX: Final = 100_000

# Locks there may be local to a machine, or lost without a word; FUSE promises nothing at all.
_NETWORK: Final = frozenset(
    {
        "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gfs", "gfs2",
        "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb3",
        "smbfs", "vboxsf", "virtiofs", "vmhgfs",
    }
)  # fmt: skip
# A write goes elsewhere, and the old bytes stay: copy-on-write and log-structured ones.
_COPY_ON_WRITE: Final = frozenset(
    {"apfs", "bcachefs", "btrfs", "f2fs", "jffs2", "logfs", "nilfs2", "ubifs", "zfs"}
)
_PLAIN: Final = frozenset(
    {
        "ext2", "ext3", "ext4", "xfs", "jfs", "reiserfs", "tmpfs", "ramfs", "ufs", "hfsplus", "ntfs3",
        "exfat", "vfat", "overlay",
    }
)  # fmt: skip
_COMPRESSING: Final = ("compress", "compress-force", "compression", "compress_algorithm")
_NOT_COMPRESSING: Final = frozenset({"no", "none", "off"})


@dataclass(frozen=True, slots=True)
class Medium:
    """What a directory lies on.

    Attributes:
        file_system: the kernel's name of its type; "unknown" where no mount was found.
        device: the source of the mount, as mounted.
        is_network: locks and writes go through a network or a FUSE process: nothing may be promised there.
        is_copy_on_write: what is overwritten, or was compressed, may stay on the device.
        notes: sentences for who reads a plan or a certificate.
    """

    file_system: str
    device: str
    is_network: bool
    is_copy_on_write: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Mount:
    point: str
    numbers: str
    file_system: str
    source: str
    options: tuple[str, ...]


def medium_of(path: Path, *, mounts: Path = MOUNTS) -> Medium:
    """Find what a path lies on.

    The longest mount above it counts, of those with its device first: a mount that another one hides has a
    longer path and another device. (Subvolumes of btrfs have devices that no mount shows.)

    Args:
        mounts: the kernel's table, another file in tests.
    Raises: FileNotFoundError, PermissionError: as the operating system says of the path.
    """
    real = os.path.realpath(path, strict=True)
    device = os.stat(real).st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    best: tuple[bool, int] = (False, -1)
    found = None
    for line in mounts.read_text(errors="surrogateescape").splitlines()[:MOUNTS_MAX]:
        mount = _parse(line)
        if mount is None or not _is_below(real, mount.point):
            continue
        rank = (mount.numbers == numbers, len(mount.point))
        if rank >= best:  # of two on one point the later one is on top
            best, found = rank, mount
    if found is None:
        return Medium("unknown", "", False, False, ("no mount was found for it",))
    return _medium(found)


def _parse(line: str) -> _Mount | None:
    before, separator, after = line.partition(" - ")
    fields, kind = before.split(" "), after.split(" ")
    if not separator or len(fields) < 6 or len(kind) < 2:
        return None
    options = (*fields[5].split(","), *(kind[2].split(",") if len(kind) > 2 else ()))
    return _Mount(_unescape(fields[4]), fields[2], kind[0], _unescape(kind[1]), options)


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _medium(mount: _Mount) -> Medium:
    name = mount.file_system
    is_network = name in _NETWORK or name.startswith("fuse.")
    is_copy_on_write = name in _COPY_ON_WRITE
    notes = []
    if name == "overlay":
        notes.append("an overlay: a copy of a file may remain in a lower layer")
    if is_copy_on_write:
        notes.append(f"{name} writes elsewhere and keeps old bytes until it needs their place")
    if _compresses(mount.options):
        is_copy_on_write = True
        notes.append(f"{name} is mounted with compression: overwritten bytes may stay on the device")
    if "data=journal" in mount.options:
        notes.append("the file system's journal holds copies of data for a while (data=journal)")
    if not is_network and not is_copy_on_write and name not in _PLAIN:
        notes.append(f"the file system {name} is not known; it is taken for one that overwrites in place")
    return Medium(name, mount.source, is_network, is_copy_on_write, tuple(notes))


def _compresses(options: tuple[str, ...]) -> bool:
    for option in options:
        name, _, value = option.partition("=")
        if name in _COMPRESSING and value not in _NOT_COMPRESSING:
            return True
    return False
