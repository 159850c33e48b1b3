"""Every word in capitals that an answer may have is in the runbook, or named here with the reason."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from app.runbook.registry import RUNBOOK, normal
from tests.style.source_files import ROOT, source_files

WORD: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
CHOICES: Final[dict[str, set[str]]] = {
    "what a request, a setting or a parameter chooses; its field or its option says what each does": {
        *("ALL", "AS_PROGRAM", "AUTO", "BUILTIN", "CLASSIC", "CLOSED", "DAY", "DENY", "ALLOW", "DOCUMENT"),
        *("EAGER", "FILTER_INSTALLED", "FORBID", "FORCE", "FULL", "GENTLE", "INLINE", "INSTALLED", "LAZY"),
        *("LIVE", "MANUAL", "MARK", "MONTH", "MS", "NATIVE", "ON", "OFF", "PARQUET", "PROGRAM", "QUEUE"),
        *("READ_ONLY", "REFUSE", "REMOVE", "RUN_ONCE", "S", "SKIP", "SPARK", "STOP", "SYNC", "VIA_LETHE"),
        *("INCREMENTAL", "TOTAL", "RECAPTURE", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"),
        *("RS256", "RS384", "RS512"),
    },
    "a kind of record, of parameter, of job's class, or a command of slonik; the word says it": {
        *("CHANGE", "KEEPALIVE", "BOOLEAN", "INTEGER", "DURATION", "CRON", "INTERACTIVE", "BULK"),
        *("SUBSCRIBE_SET", "DROP_NODE", "CLONE_PREPARE", "CREATE_SET", "SUBMIT_TO_OTHER_NODE"),
        *("STORE_NODE", "RESUBSCRIBE_NODE", "MERGE_SET", "MOVE_SET", "LOCK_SET", "FAILOVER"),
        *("CONFIG", "DROP_SET", "LAST", "PREVIOUS", "TRANSACTIONS"),
        *("COPY", "DDL", "DDL_END", "END", "SEQUENCE"),
    },
    "where something came from, where it holds or which side it is; the word says it": {
        *("GLOBAL", "STORE", "LOCAL", "REPLICATED", "LOG", "REQUEST", "PARAMETERS", "CONSUMER", "SUPPLIER"),
        *("SENT", "RECEIVED", "SETTING", "CALIBRATED", "BUILT_IN", "USED"),
    },
    "how bad a finding of health is, and the unit of what was measured; the word says it": {
        *("CRITICAL", "SECONDS", "CHANGES", "BYTES"),
    },
    "a change of a store, as the stream of events has it": {
        "ADDED",
        "CHANGED",
        "REMOVED",
        "RESUMED",
        "HEALTH",
    },
    "a right or an ability, as a check names it beside its code": {
        *("READ", "CREATE_SYNC", "CONFIRM", "CLEANUP", "CLEANUP_NATIVE", "LOG_INDICES", "SELECT", "INSERT"),
        *("UPDATE", "DELETE", "TRUNCATE", "LOCK", "EXECUTE", "OWNER", "SUPERUSER"),
    },
    "an inner step or a rule that no answer shows": {
        *("NEW", "HEADERS", "SELECTED", "BATCHES", "EVENTS", "DATA", "EVENT", "SEQLOG", "LOG_SCRIPT"),
        *(
            "NODELOCK",
            "TOUCH",
            "CHECK",
            "OVERWRITE",
            "UNREAD",
            "GAP",
            "RAN",
            "WRITING",
            "NOT_RUN",
            "BROKEN",
            "WRITE",
        ),
        *("BEAT", "ERASER", "BEFORE_THE_FIRST_DELETE", "REMOVES_NOTHING", "CONFIRMED_BY_ALL"),
        *(
            "AS_ITS_SOURCE",
            "OF_THE_CONSUMER",
            "EQ",
            "NE",
            "LT",
            "LE",
            "GT",
            "GE",
            "NOT_CLEAN",
            "BY_ANOTHER",
            "SAME",
            "NEWER",
        ),
        *("OLDER", "IDLE", "HTTP", "WAIT", "ATTENTION", "STATE", "COMMAND", "FINDING"),
        *("ANSWER", "YES", "NO", "MAYBE", "FINE"),
    },
}
"""Words that `lethe explain` need not know, by the reason."""
IN_WORDS: Final = {
    *(
        "FINISHED_ELSEWHERE",
        "NOTHING_TO_FINISH",
        "TIMED_OUT",
        "BY_PROGRAM",
        "DONE_BEFORE",
        "HEALED",
        "UNDECIDED",
    ),
}
"""Words of answers that the code has in no enumeration: of a log switch and of an archive's files."""
OF_CERTIFICATES: Final = {"SEPARATORS", "REMAINING"}
"""Words of one part of what a certificate says stays."""
NO_CODES: Final = {word for words in CHOICES.values() for word in words}


def _literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            values = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "StrEnum" for base in node.bases):
            values = [each.value for each in node.body if isinstance(each, ast.Assign)]
        else:
            continue
        yield from (
            each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )


def _enums(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (each for each in [*part.get("enum", ()), part.get("const")] if isinstance(each, str))
        for each in part.values():
            yield from _enums(each)
    elif isinstance(part, list):
        for each in part:
            yield from _enums(each)


NOT_SAID: Final = {
    *("SET_ADD_TABLE", "SET_DROP_TABLE", "SET_MOVE_TABLE", "SET_ADD_SEQUENCE", "SET_DROP_SEQUENCE"),
    *("SET_MOVE_SEQUENCE", "ACCEPT_SET", "FAILOVER_SET", "FAILOVER_NODE", "RESET_CONFIG"),
    *(
        "ARROW_MEDIA_TYPE",
        "ARROW_ZSTD",
        "BATCH_BYTES",
        "BYTES_PER_S",
        "JSON_TYPE",
        "NDJSON_MEDIA_TYPE",
        "ROWS_PER_S",
    ),
    *(
        "TOKEN_ID",
        "TOO_MANY",
        "ROUND_BYTES_MAX",
        "ROUND_ENTRIES_MAX",
        "SQL_ASCII",
        "UPDATE_CONFIG",
    ),
    *("O_DIRECT", "DROPPED_PAGES", "VERIFY_CA", "VERIFY_IDENTITY", "NO_CHAIN", "DROP_SET", "STORE_PATH"),
    *(
        "STORE_SET",
        "ENABLE_SUBSCRIPTION",
        "PURGE_DATA_GAPS",
        "PURGE_STATISTICS",
        "PROVISIONAL_BEFORE_CHECKPOINT_END",
        "VLSN_PRESENT",
        "XDG_CONFIG_HOME",
    ),
    *("DELETED_DATABASE", "NOT_READY"),
    # What a store `can`: the verb that it may be asked for, in capitals.
    *("CLEANUP_BUILTIN", "PLAN_CLEANUP", "PLAN_DATA_GAP", "PLAN_ERASURE", "PLAN_INCOMING", "PLAN_OUTGOING"),
    *("PLAN_ROWS", "PURGE_DATA_GAP", "PURGE_INCOMING", "PURGE_OUTGOING", "PURGE_ROWS", "READ_ENTRIES"),
    *("READ_EVENTS", "TRIM_CHANGELOG", "WRITE_CHANGES"),
}
"""Words with an underscore in the code that are names, options or words of other programs, not codes."""
VARIABLES: Final = ("LETHE_", "OTEL_", "PYSPARK_", "SPARK_", "JAVA_", "PG")


def spoken() -> set[str]:
    """Words in capitals with an underscore that stand anywhere in the code: most are codes."""
    return {
        node.value
        for file in source_files("app", "spark")
        if not file.name.startswith("app/runbook/")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if "_" in node.value and WORD.fullmatch(node.value) and not node.value.startswith(VARIABLES)
    }


@cache
def words() -> frozenset[str]:
    """Every word in capitals of an enumeration or a Literal of the code, or of an enum of the API."""
    found = {word for file in source_files("app", "spark") for word in _literals(file.tree)}
    found |= set(_enums(json.loads((ROOT / "openapi" / "openapi.json").read_text())))
    return frozenset(IN_WORDS | {word for word in found if WORD.fullmatch(word)})


def answers() -> set[str]:
    """The codes of the words that an operator meets and may look up."""
    return {normal(word) for word in (words() | spoken() | OF_CERTIFICATES) - NO_CODES - NOT_SAID}


def test_every_word_of_an_answer_has_an_entry_or_is_named_here() -> None:
    lacking = {
        word
        for word in (words() | spoken() | OF_CERTIFICATES) - NO_CODES - NOT_SAID
        if normal(word) not in RUNBOOK
    }
    assert not lacking, f"write entries in app/runbook/entries/answers, or add them here: {sorted(lacking)}"


def test_no_reason_is_given_for_a_word_that_has_an_entry_or_that_nothing_says() -> None:
    assert sorted(NO_CODES & set(RUNBOOK)) == []
    assert sorted(NO_CODES - words()) == []
    assert sorted(NOT_SAID & set(RUNBOOK)) == []
    assert sorted(NOT_SAID - spoken()) == []
    assert sum(len(each) for each in CHOICES.values()) == len(NO_CODES), "a word stands twice"


def test_the_counter_sees_literals_enumerations_and_enums() -> None:
    code = 'from typing import Literal\nX = Literal["ONE", "TWO"]\nclass E(StrEnum):\n    A = "THREE"\n'
    assert set(_literals(ast.parse(code))) == {"ONE", "TWO", "THREE"}
    assert set(_enums({"a": [{"enum": ["FOUR"]}, {"const": "FIVE"}]})) == {"FOUR", "FIVE"}


def test_openapi_says_what_each_word_of_an_answer_means() -> None:
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    lacking = [
        enum["enum"]
        for enum in _with_enum(document["components"]["schemas"])
        if len(enum["enum"]) > 1 and set(enum["enum"]) <= set(RUNBOOK) and "x-enum-descriptions" not in enum
    ]
    assert lacking == []


def _with_enum(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if "enum" in part:
            yield part
        for each in part.values():
            yield from _with_enum(each)
    elif isinstance(part, list):
        for each in part:
            yield from _with_enum(each)
