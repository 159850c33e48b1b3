"""RUV lines in 389's text forms, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.formats.csn import Csn
from spark.formats.ruv import (
    Ruv,
    RuvElement,
    RuvInvalid,
    format_ruv,
    parse_purge_vector,
    parse_ruv,
)
from tests.oracles.changelog_export import DATA, read_export
from tests.oracles.replication_recordings import SESSIONS

GENERATION = "{replicageneration} 6afffdfc000000010000"
ONE = "{replica 1 ldap://s1:389} 6afffdfc000300010000 6afffe62002900010000"
LINES = (DATA / "ruv-lines.txt").read_text().splitlines()


@pytest.mark.parametrize("line", LINES)
def test_recorded_line_survives_reading_and_writing(line: str) -> None:
    assert format_ruv(parse_ruv([line])) == [line]


def test_recorded_vectors_of_sessions_survive_reading_and_writing() -> None:
    vectors = [lines for session in SESSIONS for lines in (session["consumer_ruv"], session["supplier_ruv"])]
    assert len(vectors) == 262
    assert [format_ruv(parse_ruv(lines)) for lines in vectors] == vectors


def test_fields_of_a_line_are_told_apart() -> None:
    ruv = parse_ruv([GENERATION, f"{ONE} 6afffe50", "{replica 3}"])
    assert ruv.generation == "6afffdfc000000010000"
    assert ruv.elements == (
        RuvElement(1, "ldap://s1:389", Csn("6afffdfc000300010000"), Csn("6afffe62002900010000"), 0x6AFFFE50),
        RuvElement(3),
    )
    assert ruv.maxima == {1: "6afffe62002900010000"}
    assert ruv.minima == {1: "6afffdfc000300010000"}


def test_prefix_in_capitals_is_read_and_written_small() -> None:
    shouted = ["{REPLICAGENERATION} 6afffdfc000000010000", "{Replica 3 ldap://S3}"]
    assert format_ruv(parse_ruv(shouted)) == [
        "{replicageneration} 6afffdfc000000010000",
        "{replica 3 ldap://S3}",
    ]


@st.composite
def elements(draw: st.DrawFn, rid: int) -> RuvElement:
    """One element in any form that 389 has."""
    purl = draw(st.sampled_from(["", "ldap://s1:389", "ldap://localhost.localdomain:38901"]))
    if draw(st.booleans()):
        return RuvElement(rid, purl)
    seconds = draw(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)))
    least, greatest = sorted(Csn.of(second, draw(st.integers(0, 3)), rid) for second in seconds)
    modified = draw(st.none() | st.integers(0, 2**32 - 1))
    return RuvElement(rid, purl, least, greatest, modified)


@st.composite
def ruvs(draw: st.DrawFn) -> Ruv:
    """A vector with up to five replicas in any order."""
    rids = draw(st.lists(st.integers(1, 65_534), unique=True, max_size=5))
    generation = draw(st.none() | st.integers(0, 2**32 - 1).map(lambda second: Csn.of(second, 0, 1)))
    return Ruv(generation, tuple(draw(elements(rid)) for rid in rids))


@given(ruvs())
def test_any_vector_survives_writing_and_reading(ruv: Ruv) -> None:
    assert parse_ruv(format_ruv(ruv)) == ruv


def test_purge_vectors_of_real_exports_are_read() -> None:
    full, trimmed = read_export("s1-changelog-full.ldif.gz"), read_export("s1-changelog-trimmed.ldif")
    assert full.purged.maxima == {}
    assert [each.rid for each in full.purged.elements] == [1, 2, 3, 4]
    assert trimmed.purged.maxima == {
        1: "6affff18000800010000",
        2: "6afffed8001800020000",
        3: "6affff0d001d00030000",
        4: "6afffea7002000040000",
    }
    lines = format_ruv(trimmed.purged)
    assert lines[1] == "{replica 1 ldap://localhost.localdomain:38901} 6affff18000800010000"
    assert parse_purge_vector(lines) == trimmed.purged


def test_purge_csn_of_a_real_export_is_the_last_that_left() -> None:
    # The facts say "the first that remains"; the recorded exports say otherwise, and P4 wants what they say.
    full, trimmed = read_export("s1-changelog-full.ldif.gz"), read_export("s1-changelog-trimmed.ldif")
    for rid, purged in trimmed.purged.maxima.items():
        assert purged not in trimmed.csns
        remaining = [csn for csn in trimmed.csns if csn.rid == rid]
        assert max(remaining) == trimmed.maxima.maxima[rid]
        gone = [csn for csn in full.csns if csn.rid == rid and csn not in trimmed.csns]
        assert max(gone) <= purged


@pytest.mark.parametrize(
    ("lines", "line", "position", "words"),
    [
        (["{replica 1} 6afffdfc000300010000"], 0, 11, "both or none"),
        ([GENERATION, "{replica 1} 6afffdfc00030001000 6afffe62002900010000"], 1, 31, "19 characters"),
        (["{replica 1} 6afffdfc000300010000 6afffe6200290001000g"], 0, 52, "hexadecimal"),
        (["{replica 1} 6afffdfc000300020000 6afffe62002900010000"], 0, 12, "of replica 2"),
        (["{replica 1} 6afffe62002900010000 6afffdfc000300010000"], 0, 12, "above the second"),
        ([f"{ONE} 6afffe5"], 0, 75, "characters"),
        ([f"{ONE} 6AFFFE50"], 0, 69, "lower-case"),
        ([f"{ONE} "], 0, 68, "0 characters"),
        ([f"{ONE}  6afffe50"], 0, 68, "0 characters"),
        (["{replica 1}x"], 0, 11, "no blank"),
        (["{replica 0}"], 0, 9, "'0'"),
        (["{replica 65535}"], 0, 9, "'65535'"),
        (["{replica 01}"], 0, 9, "'01'"),
        (["{replica -1}"], 0, 9, "'-1'"),
        (["{replica }"], 0, 9, "''"),
        (["{replica 99999999999999999999}"], 0, 9, "no replica id"),
        (["{replica 1 ldap://a b}"], 0, 0, "neither"),
        (["{replica 1 ldap://\x00}"], 0, 11, "no address"),
        ([ONE, "{replica 1}"], 1, 0, "stands twice"),
        ([GENERATION, GENERATION], 1, 0, "stands twice"),
        (["{replicageneration}"], 0, 0, "neither"),
        (["{replicageneration} 4"], 0, 21, "1 characters"),
        (["replica 1"], 0, 0, "neither"),
        ([ONE, ""], 1, 0, "neither"),
        (["{replica 1}\n"], 0, 11, "no blank"),
        (["x" * 1_000_000], 0, 0, "neither"),
    ],
)
def test_line_that_is_wrong_is_refused_with_its_place(
    lines: list[str], line: int, position: int, words: str
) -> None:
    with pytest.raises(RuvInvalid) as caught:
        parse_ruv(lines)
    assert (caught.value.line, caught.value.position) == (line, position)
    assert words in caught.value.detail
    assert len(caught.value.detail) < 300


def test_more_lines_than_replica_ids_are_refused_unread() -> None:
    with pytest.raises(RuvInvalid, match="at most 65535"):
        parse_ruv(["nonsense"] * 65_536)


def test_whole_range_of_replica_ids_is_read() -> None:
    lines = [GENERATION, *(f"{{replica {rid}}}" for rid in range(1, 65_535))]
    assert len(parse_ruv(lines).elements) == 65_534


@given(st.lists(st.text(alphabet="{}replicagnto 0123456789af:/x\n", max_size=60), max_size=4))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    try:
        ruv = parse_ruv(lines)
    except RuvInvalid as error:
        places = (error.line, error.position)
    else:
        assert parse_ruv(format_ruv(ruv)) == ruv
        return
    assert 0 <= places[0] < len(lines)
    assert 0 <= places[1] <= len(lines[places[0]])
