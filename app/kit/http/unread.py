"""What the framework would not read is refused: unknown query names, the first value of a doubled key."""

from fastapi import Request

from app.errors import InvalidJson
from app.kit.http.query_names import refuse_unknown_query
from app.kit.json_bodies import TwiceNamed, loads


async def refuse_unread(request: Request) -> None:
    """Let a request pass all of which is read.

    Raises: InvalidRequest: names of the query; InvalidJson: a key is given twice.
    """
    refuse_unknown_query(request)
    _refuse_doubled_keys(request)


def _refuse_doubled_keys(request: Request) -> None:
    """FastAPI has read the body, and kept the last value of a key."""
    body = getattr(request, "_body", b"")
    if not body:
        return
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not (content_type == "application/json" or content_type.endswith("+json")):
        return
    try:
        loads(body)
    except TwiceNamed as error:
        raise InvalidJson(str(error)) from error
    except (ValueError, RecursionError):
        return  # whoever reads it says what is wrong with it
