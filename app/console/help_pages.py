"""What each code means and what to do: the runbook, where a browser needs no other host."""

from fastapi import Request
from starlette.responses import Response

from app.console.rendering import render
from app.console.sessions import SignedInDep
from app.kit.http.routing import new_router
from app.runbook.page import PASSES
from app.runbook.registry import SECTIONS

router = new_router(include_in_schema=False)


@router.get("/console/help")
def get_help(request: Request, signed_in: SignedInDep) -> Response:
    """All entries; links lead to one of them."""
    return render(request, "help.html", signed_in, sections=SECTIONS, passes=PASSES)
