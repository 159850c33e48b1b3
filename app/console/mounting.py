"""The console becomes a part of the application, where the settings want it."""

from typing import Final

from fastapi import FastAPI

from app.console import error_pages
from app.console.acts.pages import router as acts_router
from app.console.acts.plan_pages import router as plans_router
from app.console.help_pages import router as help_router
from app.console.job_pages import router as jobs_router
from app.console.lists.archive_pages import router as archives_router
from app.console.lists.audit_pages import router as audit_router
from app.console.lists.backup_pages import router as backups_router
from app.console.lists.doing_pages import router as doings_router
from app.console.lists.schedule_pages import router as schedules_router
from app.console.lost.pages import router as lost_router
from app.console.overview_pages import router as overview_router
from app.console.reference.pages import router as reference_router
from app.console.replicas.pages import router as replicas_router
from app.console.shared import SharedParts
from app.console.sign_in_pages import router as sign_in_router
from app.console.static_files import router as static_router
from app.console.store_pages import router as stores_router
from app.console.streams import router as streams_router
from app.kit.http.routing import add_routes
from app.settings import Settings

ROUTERS: Final = (
    sign_in_router,
    static_router,
    streams_router,
    overview_router,
    help_router,
    acts_router,
    plans_router,
    archives_router,
    audit_router,
    backups_router,
    doings_router,
    schedules_router,
    reference_router,
    jobs_router,
    lost_router,
    replicas_router,
    stores_router,
)


def add_console(app: FastAPI, settings: Settings) -> None:
    """Add its pages, and show errors on its paths as pages."""
    if settings.console == "OFF":
        return
    for router in ROUTERS:
        add_routes(app, router)
    app.state.console_parts = SharedParts()
    error_pages.install(app)
