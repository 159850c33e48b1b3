"""The environment of the demo: an archive in the wheel, since the writer is not in it."""

from lethe_samples.demo import ARCHIVE, archive_members, sample_members


def test_archive_of_the_demo_has_the_bytes_that_the_writer_writes() -> None:
    kept, written = archive_members(ARCHIVE), sample_members()
    assert list(kept) == list(written)
    assert [name for name in kept if kept[name] != written[name]] == [], "run: python -m lethe_samples.demo"
