"""Every command block of README and docs is run; those that cannot be say why, and are counted here."""

from __future__ import annotations

import ast
import configparser
import contextlib
import os
import shutil
import sqlite3
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import yaml

from lethe_samples.symmetricds import build
from tests.pages.blocks import PAGES, ROOT, Block, Reader, blocks_of

LANGUAGES: Final = {"ini", "json", "python", "sh", "sql", "systemd", "text", "yaml"}
NOT_RUN: Final = {
    "skip=tests": 2,  # make demo and make test; make wheels, which CI runs by itself
    "skip=je": 2,  # a jar of JE: tests/spark/erase/test_helper.py runs it where there is one
    "skip=symmetricds": 1,  # a database with a backlog: tests/http/test_backlogs.py runs the command
    "skip=slony": 6,  # three nodes and their slons: tests/http/test_slony_command.py runs these verbs
    "skip=ds389": 4,  # servers of 389: tests/app/replication/test_ds389_servers.py asks real ones
    "needs=docker": 2,  # tests/deploy runs the commands of compose.yaml
    "needs=kubernetes": 1,  # make deploy renders the chart
    "needs=root": 1,  # it makes accounts of the machine
}
"""Blocks that no test runs, by the word that says why."""
PROGRAMS: Final = {"needs=restic": "restic", "needs=borg": "borg"}

SAMPLE: Final = ROOT / "tests" / "data" / "symmetricds" / "small_3x.sqlite"
SERVICE: Final = """
mkdir -m 700 -p /tmp/lethe-secrets
LETHE_SECRETS_DIR=/tmp/lethe-secrets lethe serve --data-dir /tmp/lethe --port 8765 2> /tmp/lethe.log &
until curl -sf http://127.0.0.1:8765/readyz; do sleep 0.2; done
export LETHE_URL=http://127.0.0.1:8765 LETHE_TOKEN=$(cat /tmp/lethe/admin.token)
"""
SHOP: Final = """
cp tests/data/symmetricds/small_3x.sqlite /tmp/shop.sqlite
lethe store add shop sqlite:////tmp/shop.sqlite --label region=eu
"""
TICKETS: Final = """
python3 - <<'END'
import sqlite3
db = sqlite3.connect("/tmp/tickets.sqlite")
db.executescript('''
    create table ticket (id integer primary key not null, closed_at text, status text);
    create table ticket_note (id integer primary key not null,
        ticket_id integer not null references ticket (id));
    create index note_of on ticket_note (ticket_id);
    create index closed on ticket (closed_at);
    insert into ticket values (1, '2024-01-01 00:00:00', 'closed'), (2, '2024-01-02 00:00:00', 'open');
    insert into ticket_note values (1, 1), (2, 2);
''')
END
"""
ENVIRONMENT: Final = """
mkdir -p /tmp/orders && tar -xJf tests/data/je/closed.tar.xz -C /tmp/orders --strip-components=1
lethe store add-environment orders /tmp/orders
lethe erasure start orders --min-file-age PT0S --duration PT0S --wait --reason "for the page"
lethe certificate get orders -o /tmp/orders.json
cd /tmp/orders
"""
BEFORE: Final = {
    "docs/concepts/extinction.md": "lethe store add orders sqlite:////tmp/orders.db --kind REPLICA --rid 1\n"
    "lethe changes put orders orders 2024-01-15/1001 new\n",
    "docs/how-to/partial-replicas.md": "",
    "docs/how-to/recipes.md": SERVICE,
    "docs/how-to/rows.md": TICKETS + "cd /tmp/\n",
    "docs/how-to/schedules.md": SERVICE + SHOP,
    "docs/how-to/symmetricds.md": "",
    "docs/how-to/webhooks.md": SHOP + "python3 docs/tutorial/receiver.py 8766 /tmp/alerts &\nsleep 1\n",
    "docs/reference/certificate.md": ENVIRONMENT,
    "docs/reference/operations.md": "cd /tmp/\n",
}
"""What a page takes for granted, and does not say; others start their service by themselves."""
AFTER: Final = {"docs/reference/certificate.md": "lethe store remove orders\n"}
"""What makes room for the next page of the same service."""
INSTEAD: Final = {
    "README.md": {"make setup\n": "", "/tmp/alerts &": "/tmp/alerts & sleep 1"},
    "docs/how-to/rows.md": {
        "mysql+pymysql://lethe@127.0.0.1:3306/tickets": "sqlite:////tmp/tickets.sqlite",
        " --password secret:tickets": "",
    },
    "docs/how-to/webhooks.md": {
        "https://alerts.example/lethe": "http://127.0.0.1:8766/ --clear-text-on-loopback",
    },
}
"""What the page names and no machine of a test has."""


def commands(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.language == "sh"]


def is_run(block: Block) -> bool:
    return not set(block.words) & set(NOT_RUN)


TOGETHER: Final = (
    "docs/reference/certificate.md",
    "docs/concepts/extinction.md",
    "docs/how-to/partial-replicas.md",
    "docs/how-to/symmetricds.md",
    "docs/how-to/rows.md",
    "docs/how-to/webhooks.md",
    "docs/reference/operations.md",
)
"""Pages that need a service and do not start one: they share it, one after the other."""
RUN: Final = [page for page in PAGES if any(map(is_run, commands(page)))]


def test_every_block_has_a_language_and_commands_that_are_not_run_say_why() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert {block.language for block in blocks} <= LANGUAGES, [
        b for b in blocks if b.language not in LANGUAGES
    ]
    words = Counter(word for block in blocks for word in block.words)
    assert {word: count for word, count in words.items() if word not in PROGRAMS} == NOT_RUN
    # No command hides in a block of another language; the page made from the command has examples that
    # tests/style/test_examples.py parses.
    pages = [b for b in blocks if b.page != "docs/reference/commands.md"]
    hidden = [b for b in pages if b.language == "text" and b.text.startswith(("lethe ", "curl ", "$ "))]
    assert [b for b in hidden if "POST" not in b.text] == []


@pytest.mark.journey
@pytest.mark.parametrize("page", [page for page in RUN if page not in TOGETHER])
def test_commands_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    blocks = [block for block in commands(page) if is_run(block)]
    missing = {
        PROGRAMS[word] for block in blocks for word in block.words if shutil.which(PROGRAMS[word]) is None
    }
    assert not missing or "LETHE_REQUIRE_PEERS" not in os.environ
    blocks = [block for block in blocks if not any(PROGRAMS[word] in missing for word in block.words)]
    text = BEFORE.get(page, "") + "\n".join(block.text for block in blocks)
    # The one that everybody reads first is run as it stands, with every start of the command.
    reader = Reader(tmp_path, is_forged=page != "README.md")
    ran = reader.run(_with_places(page, text) + "\necho the page ends here\n")
    assert ran.code == 0, ran.output[-3000:]
    assert ran.output.rstrip().endswith("the page ends here")
    assert "Traceback" not in ran.output
    if page == "README.md":
        assert ran.took_s < 15 * 60
        print(f"README: a nightly purge with a window, and an alert after a failure, in {ran.took_s:.0f} s")


@pytest.mark.journey
def test_commands_of_pages_that_need_a_service_do_what_they_say(tmp_path: Path) -> None:
    script = SERVICE
    for page in TOGETHER:
        text = BEFORE[page] + preparations(page) + "\n".join(b.text for b in commands(page) if is_run(b))
        script += f"\n(\nset -eu\n{_with_places(page, text)}\n{AFTER.get(page, '')}echo {page} ends here\n)\n"
    ran = Reader(tmp_path).run(script)
    assert ran.code == 0, ran.output[-3000:]
    assert [page for page in TOGETHER if f"{page} ends here" not in ran.output] == []
    assert "Traceback" not in ran.output
    assert sorted(_purged_of_the_sample(tmp_path)) == sorted(UPKEEP)


UPKEEP: Final = (
    "sym_extract_request",
    "sym_incoming_error",
    "sym_node_host_channel_stats",
    "sym_node_host_job_stats",
    "sym_node_host_stats",
    "sym_registration_request",
    "sym_table_reload_request",
    "sym_table_reload_status",
    "sym_trigger_hist",
)
"""Tables of the kinds of purge that docs/how-to/symmetricds.md runs: each loses rows, and keeps some."""


def _purged_of_the_sample(folder: Path) -> list[str]:
    """Tables of the page's database with fewer rows than the sample has, and not empty."""
    build(folder / "anew.sqlite", now=datetime.now(UTC).replace(tzinfo=None))
    with (
        contextlib.closing(sqlite3.connect(folder / "anew.sqlite")) as anew,
        contextlib.closing(sqlite3.connect(folder / "sym.sqlite")) as purged,
    ):
        counted = {
            table: [db.execute(f"select count(*) from {table}").fetchone()[0] for db in (anew, purged)]
            for table in UPKEEP
        }
    return [table for table, (before, after) in counted.items() if 0 < after < before]


def _with_places(page: str, text: str) -> str:
    for named, there in INSTEAD.get(page, {}).items():
        assert named in text, named
        text = text.replace(named, there)
    return text


NIGHT: Final = {
    "'30 2 * * *'": "'* * * * *'",
    "'0 22 * * *' --duration PT8H": "'0 0 * * *' --duration PT24H",
    "kill %1 %2": (
        'until grep -q \'"store":"shop","state":"SUCCEEDED"\' /tmp/alerts; do sleep 1; done\nkill %1 %2'
    ),
}
"""A night that has come: the schedule fires within a minute, and its window is open."""


@pytest.mark.long
@pytest.mark.journey
def test_nightly_purge_of_the_readme_comes_by_itself_and_its_end_is_an_alert(tmp_path: Path) -> None:
    text = "\n".join(block.text for block in commands("README.md") if is_run(block))
    for named, there in (INSTEAD["README.md"] | NIGHT).items():
        assert named in text, named
        text = text.replace(named, there)
    ran = Reader(tmp_path).run(text)
    assert ran.code == 0, ran.output[-3000:]
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.sqlite")) as shop:
        [left] = shop.execute("select count(*) from sym_outgoing_batch where status = 'OK'").fetchone()
    with contextlib.closing(sqlite3.connect(SAMPLE)) as sample:
        [before] = sample.execute("select count(*) from sym_outgoing_batch where status = 'OK'").fetchone()
    assert left < before


def preparations(page: str) -> str:
    """Python that a page has its reader run before its commands."""
    if page != "docs/reference/certificate.md":
        return ""
    split = next(block.text for block in blocks_of(page) if block.language == "python")
    return f"cat > split.py <<'END'\n{split}END\npython3 split.py /tmp/orders.json\n"


def test_files_that_pages_show_are_what_they_claim(tmp_path: Path) -> None:
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "python":
                ast.parse(block.text, f"{page}:{block.line}")
            elif block.language == "yaml":
                assert yaml.safe_load(block.text)
            elif block.language in {"ini", "systemd"}:
                parser = configparser.ConfigParser(strict=False, interpolation=None)
                parser.read_string(block.text)
                assert parser.sections()


def test_airflow_recipe_purges_once_for_a_run(tmp_path: Path) -> None:
    [recipe] = [block.text for block in blocks_of("docs/how-to/recipes.md") if block.language == "python"]
    (tmp_path / "recipe.py").write_text(recipe + "\nprint(purge_shop('r1'))\nprint(purge_shop('r1'))\n")
    ran = Reader(tmp_path).run(SERVICE + SHOP + "echo && python /tmp/recipe.py\n")
    assert ran.code == 0, ran.output[-3000:]
    first, second = ran.output.split()[-2:]
    assert first == second
    assert first.startswith("job_")


def test_readme_is_a_page() -> None:
    assert len((ROOT / "README.md").read_text()) <= 18_846 / 3, "a third of what it was; move it into docs"
