"""Where a secret may be read from: what an admin's folder and variables hold, and nothing else."""

import os
from pathlib import Path

import pytest

from app.secrets.errors import SecretUnavailable
from app.secrets.reading import SECRET_MAX_BYTES, check_place, problem_of, read_reference
from app.settings import Settings


@pytest.fixture
def place(tmp_path: Path) -> Settings:
    folder, data = tmp_path / "secrets", tmp_path / "data"
    folder.mkdir(mode=0o755)
    data.mkdir(mode=0o700)
    (data / "admin.token").write_text("lethe_of_the_admin\n")
    write(folder / "shop.password", "hunter2\n")
    return Settings(data_dir=data, secrets_dir=folder)


def write(path: Path, content: str | bytes, *, mode: int = 0o600) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


def folder_of(place: Settings) -> Path:
    assert place.secrets_dir is not None
    return place.secrets_dir


def fault(reference: str, place: Settings) -> str:
    with pytest.raises(SecretUnavailable) as refused:
        read_reference(reference, name="shop", settings=place)
    for content in ("hunter2", "of_the_admin"):
        assert content not in refused.value.detail
    return refused.value.detail


def test_file_below_the_folder_is_read_by_either_name(place: Settings) -> None:
    for reference in ("file:shop.password", f"file:{folder_of(place)}/shop.password"):
        assert read_reference(reference, name="shop", settings=place) == "hunter2"
    assert problem_of("file:shop.password", name="shop", settings=place) is None


def test_link_that_stays_in_the_folder_is_followed(place: Settings) -> None:
    # As mounted secrets of containers are made: a name, a link to today's folder, the file.
    (folder_of(place) / "today").mkdir()
    write(folder_of(place) / "today" / "east.token", "of-east")
    (folder_of(place) / "data").symlink_to("today")
    (folder_of(place) / "east.token").symlink_to("data/east.token")
    assert read_reference("file:east.token", name="east", settings=place) == "of-east"


def test_link_that_leads_out_is_refused_whatever_part_of_the_path_it_is(place: Settings) -> None:
    (folder_of(place) / "leak").symlink_to(place.data_dir / "admin.token")
    (folder_of(place) / "there").symlink_to(place.data_dir)
    (folder_of(place) / "shadow").symlink_to("/etc/passwd")
    (folder_of(place) / "self").symlink_to("/proc/self/environ")
    for name in ("leak", "there/admin.token", "shadow", "self"):
        assert "leads out" in fault(f"file:{name}", place)


def test_file_below_the_data_directory_is_refused_even_where_the_folder_holds_it(tmp_path: Path) -> None:
    # An admin who names a folder above the data directory does not give its token away by it.
    data = tmp_path / "data"
    data.mkdir()
    write(data / "admin.token", "lethe_of_the_admin")
    place = Settings(data_dir=data, secrets_dir=tmp_path)
    assert "data directory" in fault("file:data/admin.token", place)
    (tmp_path / "leak").symlink_to(data / "admin.token")
    assert "data directory" in fault("file:leak", place)
    with pytest.raises(ValueError, match="data directory"):
        check_place("file:data/admin.token", place)


@pytest.mark.parametrize(
    "reference",
    ["file:/etc/shadow", "file:///etc/shadow", "file:../data/admin.token", "file:sub/../../data/admin.token"],
)
def test_path_out_of_the_folder_is_refused(place: Settings, reference: str) -> None:
    fault(reference, place)


@pytest.mark.parametrize(
    "variable", ["PATH", "PGPASSWORD", "SHOP_PASSWORD", "LETHE_METADATA_URL", "LETHE_SECRETS"]
)
def test_variable_that_was_not_named_for_it_is_refused(
    place: Settings, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "hunter2")
    said = fault(f"env:{variable}", place)
    assert "lethe secret update shop --reference env:LETHE_SECRET_NAME" in said


def test_variable_that_was_named_for_it_is_read(place: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_SECRET_SHOP", "hunter2")
    assert read_reference("env:LETHE_SECRET_SHOP", name="shop", settings=place) == "hunter2"
    monkeypatch.setenv("LETHE_SECRET_SHOP", "")
    assert "empty" in fault("env:LETHE_SECRET_SHOP", place)
    monkeypatch.delenv("LETHE_SECRET_SHOP")
    assert "not set" in fault("env:LETHE_SECRET_SHOP", place)


def test_file_that_everybody_can_read_is_refused_unless_its_folder_is_closed(place: Settings) -> None:
    write(folder_of(place) / "open", "hunter2", mode=0o644)
    assert "chmod" in fault("file:open", place)
    folder_of(place).chmod(0o750)
    assert read_reference("file:open", name="open", settings=place) == "hunter2"


def test_what_is_no_plain_small_file_is_refused(place: Settings) -> None:
    folder = folder_of(place)
    os.mkfifo(folder / "pipe", 0o600)
    (folder / "folder").mkdir()
    write(folder / "long", b"x" * (SECRET_MAX_BYTES + 1))
    write(folder / "binary", b"\xff\xfe")
    write(folder / "empty", "\n")
    write(folder / "twice", "hunter2")
    os.link(folder / "twice", place.data_dir / "twice")
    for name in ("pipe", "folder", "long", "binary", "empty", "twice", "missing"):
        fault(f"file:{name}", place)


def test_service_without_a_folder_reads_no_file(tmp_path: Path) -> None:
    assert "LETHE_SECRETS_DIR" in fault("file:shop.password", Settings(data_dir=tmp_path))
