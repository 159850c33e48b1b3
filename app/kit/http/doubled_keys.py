"""JSON in which a key is given twice is refused: FastAPI has read it and kept the last value."""

from fastapi import Request

from app.errors import InvalidJson
from app.kit.json_bodies import TwiceNamed, loads


async def refuse_doubled_keys(request: Request) -> None:
    """Let a request pass whose body names each thing once, or is no JSON.

    Raises: InvalidJson.
    """
    body = getattr(request, "_body", b"")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body or not (content_type == "application/json" or content_type.endswith("+json")):
        return
    try:
        loads(body)
    except TwiceNamed as error:
        raise InvalidJson(str(error)) from error
    except (ValueError, RecursionError):
        return  # whoever reads it says what is wrong with it
