"""Tables that a purge ROWS is refused for: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "NO_KEY",
        (Seen.HTTP,),
        (
            "The table has neither a primary key nor a unique index whose columns are NOT NULL, so "
            "its rows cannot be named."
        ),
        "Add a primary key or such an index, then send the purge again.",
        Passes.NO,
    ),
    Entry(
        "KEY_NULLABLE",
        (Seen.HTTP, Seen.FINDING),
        (
            "The columns of the primary key may hold NULLs, as SQLite allows, so a key may name more "
            "than one row."
        ),
        "Declare the columns of the key NOT NULL, then send the purge again.",
        Passes.NO,
    ),
    Entry(
        "KEY_TYPE",
        (Seen.HTTP,),
        "A column of the key has a type whose order Lethe cannot walk; `detail` names it.",
        (
            "Add a unique index of NOT NULL columns of another type, such as an integer, then send "
            "the purge again."
        ),
        Passes.NO,
    ),
    Entry(
        "NAME_UNSUPPORTED",
        (Seen.HTTP,),
        (
            "On MariaDB and MySQL the name of the table contains the word `where`, which Lethe takes "
            "for a word of SQL."
        ),
        "Rename the table, then send the purge again.",
        Passes.NO,
    ),
    Entry(
        "NOT_TRANSACTIONAL",
        (Seen.HTTP, Seen.FINDING),
        (
            "The table's engine (such as MyISAM) knows no transactions: what a failed unit removed "
            "would stay removed."
        ),
        "Convert it by `ALTER TABLE ... ENGINE=InnoDB`, then send the purge again.",
        Passes.NO,
    ),
    Entry(
        "VERSIONED",
        (Seen.HTTP, Seen.FINDING),
        "The table is system-versioned: the server would keep the history of every row that goes.",
        "Purge the history by the server's own means (`DELETE HISTORY`), or drop the system versioning.",
        Passes.NO,
    ),
    Entry(
        "PERMISSION_MISSING",
        (Seen.HTTP, Seen.FINDING),
        "The role of the store lacks a right on a table; `detail` names table and right.",
        "Grant it as the owner of the table, then send the purge again.",
        Passes.NO,
    ),
    Entry(
        "ROW_SECURITY",
        (Seen.HTTP, Seen.FINDING),
        (
            "Row security hides rows from the role, of the table or of one that refers to it, so rows "
            "may be needed by others unseen."
        ),
        "Let the store log in as a role with BYPASSRLS, or the owner, then send the purge again.",
        Passes.NO,
    ),
    Entry(
        "INHERITED",
        (Seen.HTTP, Seen.FINDING),
        "Other tables inherit from the table, so a key would not name one row.",
        "Purge each of the tables that inherit by itself.",
        Passes.NO,
    ),
    Entry(
        "CASCADES",
        (Seen.HTTP, Seen.FINDING),
        (
            "A foreign key is ON DELETE CASCADE: the database would remove rows of another table, "
            "uncounted and without an archive."
        ),
        "Name that table in `children` (`--child TABLE`): its rows then go first, counted and archived.",
        Passes.NO,
    ),
)
