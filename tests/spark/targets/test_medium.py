"""What a directory lies on, by tables of mounts as kernels write them."""

import os
from pathlib import Path

import pytest

from spark.targets.files.medium import Medium, medium_of


def table(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def line(point: str, kind: str, *, numbers: str = "0:99", source: str = "dev", options: str = "rw") -> str:
    return f"27 1 {numbers} / {point} {options} shared:1 - {kind} {source} rw"


def numbers_of(path: Path) -> str:
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


@pytest.mark.parametrize(
    ("kind", "is_network", "is_copy_on_write"),
    [
        ("ext4", False, False),
        ("xfs", False, False),
        ("tmpfs", False, False),
        ("nfs4", True, False),
        ("cifs", True, False),
        ("9p", True, False),
        ("virtiofs", True, False),
        ("fuse.sshfs", True, False),
        ("fuseblk", True, False),
        ("btrfs", False, True),
        ("zfs", False, True),
        ("bcachefs", False, True),
        ("nilfs2", False, True),
        ("f2fs", False, True),
    ],
)
def test_kinds_of_file_systems(tmp_path: Path, kind: str, is_network: bool, is_copy_on_write: bool) -> None:
    mounts = table(tmp_path / "mounts", line("/", kind, source="/dev/x"))
    found = medium_of(tmp_path, mounts=mounts)

    assert (found.file_system, found.device) == (kind, "/dev/x")
    assert (found.is_network, found.is_copy_on_write) == (is_network, is_copy_on_write)


def test_plain_file_system_has_nothing_to_be_told(tmp_path: Path) -> None:
    mounts = table(tmp_path / "mounts", line("/", "ext4"))
    assert medium_of(tmp_path, mounts=mounts) == Medium("ext4", "dev", False, False, ())


def test_longest_mount_counts_and_a_name_that_only_begins_alike_does_not(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "database").mkdir()
    mounts = table(tmp_path / "mounts", line(f"{tmp_path}/data", "btrfs"), line("/", "ext4"))

    assert medium_of(tmp_path / "data", mounts=mounts).file_system == "btrfs"
    assert medium_of(tmp_path / "database", mounts=mounts).file_system == "ext4"


def test_mount_on_the_same_point_hides_the_earlier_one(tmp_path: Path) -> None:
    mounts = table(tmp_path / "mounts", line("/", "ext4"), line("/", "xfs"))
    assert medium_of(tmp_path, mounts=mounts).file_system == "xfs"


def test_mount_that_is_hidden_by_a_later_one_above_it_is_told_by_its_device(tmp_path: Path) -> None:
    mounts = table(
        tmp_path / "mounts",
        line(str(tmp_path), "nfs4", numbers="0:777"),
        line("/", "ext4", numbers=numbers_of(tmp_path)),
    )
    assert medium_of(tmp_path, mounts=mounts).file_system == "ext4"


def test_link_is_followed_to_where_the_files_are(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    mounts = table(tmp_path / "mounts", line("/", "ext4"), line(f"{tmp_path}/real", "nfs"))
    assert medium_of(tmp_path / "link", mounts=mounts).is_network


def test_blank_in_a_mount_point_is_read(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    mounts = table(tmp_path / "mounts", line("/", "ext4"), line(f"{tmp_path}/a\\040b", "zfs"))
    assert medium_of(tmp_path / "a b", mounts=mounts).file_system == "zfs"


def test_overlay_is_plain_with_a_note(tmp_path: Path) -> None:
    found = medium_of(tmp_path, mounts=table(tmp_path / "mounts", line("/", "overlay")))
    assert (found.is_network, found.is_copy_on_write) == (False, False)
    assert found.notes == ("an overlay: a copy of a file may remain in a lower layer",)


@pytest.mark.parametrize(
    ("option", "compresses"),
    [("compress=zstd:3", True), ("compression=lz4", True), ("compress-force", True), ("compress=no", False)],
)
def test_compressing_mount_keeps_old_bytes(tmp_path: Path, option: str, compresses: bool) -> None:
    mounts = table(tmp_path / "mounts", line("/", "ext4", options=f"rw,{option}"))
    assert medium_of(tmp_path, mounts=mounts).is_copy_on_write == compresses


def test_unknown_kind_is_taken_for_a_plain_one_and_named(tmp_path: Path) -> None:
    found = medium_of(tmp_path, mounts=table(tmp_path / "mounts", line("/", "newfs")))
    assert (found.file_system, found.is_network, found.is_copy_on_write) == ("newfs", False, False)
    assert "newfs is not known" in found.notes[0]


def test_lines_that_are_none_are_passed_over(tmp_path: Path) -> None:
    mounts = table(tmp_path / "mounts", "", "nonsense", "1 2 3 - ", line("/", "ext4"))
    assert medium_of(tmp_path, mounts=mounts).file_system == "ext4"
    assert medium_of(tmp_path, mounts=table(tmp_path / "none", "")).file_system == "unknown"


def test_real_table_of_this_machine_names_something(tmp_path: Path) -> None:
    assert medium_of(tmp_path).file_system not in ("", "unknown")
    assert medium_of(Path("/proc")).file_system == "proc"


def test_missing_path_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        medium_of(tmp_path / "nowhere")
