"""`lethe job abandon` and `lethe store grants`: an admin's word, and the rights of a role."""

from pathlib import Path

import pytest

from app.cli.grant_scripts import grant_script
from app.cli.main import main

OPERATIONS = Path(__file__).parents[3] / "docs" / "reference" / "operations.md"


def test_abandon_sends_the_reason_and_shows_that_nothing_is_proved(lethe, service) -> None:
    body = {"id": "job_1", "kind": "PURGE", "store": "shop", "state": "ABANDONED", "silence_proved": False}
    service.on("POST /v1/jobs/job_1:abandon", (200, body))
    run = lethe("job", "abandon", "job_1", "--reason", "node 3 burnt down")
    assert run.code == 0, run.err
    assert "not proved" in run.out
    assert service.bodies("POST /v1/jobs/job_1:abandon") == [{"reason": "node 3 burnt down"}]


def test_abandon_without_a_reason_is_no_word(lethe) -> None:
    assert lethe("job", "abandon", "job_1").code == 64


def test_watching_an_abandoned_job_ends(lethe, service) -> None:
    body = {"id": "job_1", "kind": "PURGE", "store": "shop", "state": "ABANDONED", "silence_proved": False}
    service.on("GET /v1/jobs/job_1", (200, body))
    assert lethe("job", "watch", "job_1").code == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("SLONY", "--role", "lethe", "--schema", "_Shop"), 'GRANT USAGE ON SCHEMA "_Shop" TO "lethe";'),
        (("symmetricds", "--role", 'o"x'), 'GRANT USAGE ON SCHEMA "public" TO "o""x";'),
        (
            ("SYMMETRICDS", "--database", "mariadb", "--schema", "shop", "--role", "lethe@10.0.0.%"),
            "GRANT SELECT ON `shop`.* TO 'lethe'@'10.0.0.%';",
        ),
        (("REPLICA", "--role", "lethe"), 'GRANT USAGE, CREATE ON SCHEMA "public" TO "lethe";'),
    ],
)
def test_grants_are_printed_without_a_service(
    arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "grants", *arguments]) == 0
    assert line in capsys.readouterr().out.splitlines()


def test_the_documented_grants_are_the_printed_ones() -> None:
    blocks = OPERATIONS.read_text().split("```sql\n")[1:]
    assert grant_script("SYMMETRICDS", "mariadb", role="lethe", schema="shop") in [
        block.partition("```")[0] for block in blocks
    ]
