"""From texts of files that servers leave behind to the body of `:find-lost`, which judges them."""

from typing import Any

from spark.replication.ds389.evidence import changelog_parts, read_results, session_documents


def changelog_of(text: str) -> dict[str, Any]:
    """The export of a server's changelog, without the server.

    Raises: ValueError: a CSN is wrong.
    """
    heads, csns = changelog_parts(text.splitlines())
    return {"purged": heads["clpurgeruv"], "maxima": heads["clmaxruv"], "csns": sorted(csns)}


def sessions_of(text: str) -> list[dict[str, Any]]:
    """The sessions of a supplier's error log, or recorded ones as JSON lines.

    Raises: ValueError: there is none in it.
    """
    return session_documents(text.splitlines())


def results_of(text: str) -> dict[str, int]:
    """The LDAP result of each change in an access log.

    Raises: ValueError: there is none in it.
    """
    return {str(csn): code for csn, code in read_results(text.splitlines()).items()}
