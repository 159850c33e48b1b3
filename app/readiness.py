"""`/livez` and `/readyz`: whether this process answers, and whether the API and its metadata do.

Rules:
- what is not about the API and its metadata is a note, and changes no status: without Spark jobs run inline;
- neither asks a target, and neither tells a stranger a path, a host or a number of bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import FastAPI, Request
from sqlalchemy import text
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app import errors
from app.db import Database
from app.kit.problems import problems
from app.room import Room
from app.schema_watch import Schema

SPARK_FAILED: Final = "SPARK_FAILED"
DATA_DIRECTORY_FULL: Final = "DATA_DIRECTORY_FULL"
SCHEMA_NEWER: Final = "SCHEMA_NEWER"
SCHEMA_OLDER: Final = "SCHEMA_OLDER"
NOTES: Final = {
    SPARK_FAILED: "Spark cannot start here, so that jobs with AUTO run inline;"
    " `lethe spark-pool status` says why",
    DATA_DIRECTORY_FULL: "nothing can be written to the data directory: make room there",
    SCHEMA_NEWER: "the metadata was migrated by a newer Lethe while this process runs: replace it soon",
    SCHEMA_OLDER: "the schema of the metadata is older than this process: stop it, and run `lethe migrate`"
    " (or restore the backup of the metadata that belongs to this version)",
}
UNKNOWN_QUERY: Final[dict[int | str, dict[str, Any]]] = {422: problems()[422]}
SCHEMA_NOTES: Final = {Schema.NEWER: SCHEMA_NEWER, Schema.OLDER: SCHEMA_OLDER}


@dataclass(slots=True)
class Readiness:
    """What `/readyz` tells.

    Args:
        runner_alive: whether this process can take work.
        spark_failed: whether Spark has been given up; one that still starts does not count.
        has_room: whether the data directory can be written to.
        schema: how the metadata's schema stands to ours. A newer one is a note, for two versions work side by
            side while one replaces the other; below an older one statements fail, so that it is not ready.
        needs_room: whether the metadata lies in the data directory: without room there is no service then.
    """

    runner_alive: Callable[[], bool] = field(default=lambda: False)
    spark_failed: Callable[[], bool] = field(default=lambda: False)
    has_room: Callable[[], bool] = field(default=lambda: True)
    needs_room: bool = False
    schema: Callable[[], Schema] = field(default=lambda: Schema.SAME)
    stopping: bool = False

    @property
    def status(self) -> str:
        """Of the process alone, in one word; asks nobody."""
        if self.stopping:
            return "stopping"
        return "ready" if self.runner_alive() else "starting"

    def look(self, database: Database) -> tuple[str, list[str]]:
        """The status in one word, and the codes of what else is to be known; to be called in a thread."""
        has_room = self.has_room()
        notes = [SPARK_FAILED] if self.spark_failed() else []
        notes += [] if has_room else [DATA_DIRECTORY_FULL]
        schema = self.schema()
        notes += [SCHEMA_NOTES[schema]] if schema in SCHEMA_NOTES else []
        if self.status != "ready":
            return self.status, notes
        if schema is Schema.OLDER:
            return "schema", notes
        if not has_room and self.needs_room:
            return "no-room", notes
        return ("ready" if _answers(database) else "metadata-away"), notes


def room_of(readiness: Readiness, database: Database, room: Room) -> Room:
    """Let a readiness look at the room of a data directory."""
    readiness.has_room = lambda: room.problem() is None
    readiness.needs_room = database.is_sqlite
    return room


def _answers(database: Database) -> bool:
    """Whether the metadata database can be read now."""
    try:
        with database.reading() as db:
            db.execute(text("select 1"))
    except (errors.MetadataUnavailable, errors.MetadataBusy):
        return False
    return True


def add_probes(app: FastAPI) -> None:
    """Both routes."""

    @app.get(
        "/livez",
        summary="Alive",
        operation_id="livez",
        tags=["operation"],
        openapi_extra={"security": []},
        responses=UNKNOWN_QUERY,
    )
    async def livez() -> dict[str, str]:
        """The process answers."""
        return {"status": "alive"}

    @app.get(
        "/readyz",
        summary="Ready",
        operation_id="readyz",
        tags=["operation"],
        openapi_extra={"security": []},
        responses=UNKNOWN_QUERY
        | {503: {"description": "starting, stopping, metadata-away, no-room or schema"}},
    )
    async def readyz(request: Request) -> Response:
        """200 when the API and its metadata work: metadata at head and a runner alive.

        `notes` says what else is to be known, and changes nothing: SPARK_FAILED (jobs with AUTO run inline),
        DATA_DIRECTORY_FULL (503 `no-room` where the metadata lies there), SCHEMA_NEWER,
        SCHEMA_OLDER (503 `schema`).
        """
        readiness: Readiness = request.app.state.readiness
        status, notes = await run_in_threadpool(readiness.look, request.app.state.database)
        body: dict[str, Any] = {"status": status}
        if notes:
            body["notes"] = [{"code": code, "detail": NOTES[code]} for code in notes]
        return JSONResponse(body, status_code=200 if status == "ready" else 503)
