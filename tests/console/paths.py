"""The pages of acts, lists and the reference, as addresses."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

GIVEN: Final = quote(json.dumps({"kind": "OUTGOING", "stranded": "MARK", "cutoff": "2026-01-01T00:00:00Z"}))
PATHS: Final = [
    "/console/acts",
    "/console/stores/{store}/acts",
    "/console/stores/{store}/acts/purge-outgoing",
    "/console/stores/{environment}/acts/erasure",
    "/console/stores/{environment}/acts/extinction",
    "/console/stores/{store}/acts/purge-outgoing/plans/{plan}?given=" + GIVEN.replace("{", "{{"),
    "/console/backups",
    "/console/do/backup-end/{backup}?store={environment}",
    "/console/do/erasure-abort/{protection}?store={environment}",
    "/console/do/archive-verify/{job}?store={store}",
    "/console/archives/{job}",
    "/console/schedules",
    "/console/schedules/new",
    "/console/schedules/{schedule}",
    "/console/windows/new",
    "/console/audit",
    "/console/audit?verify=true&store={store}",
    "/console/system",
    "/console/api",
    "/console/api/operations/create_purge",
    "/console/api/schemas/PurgeRequest",
    "/console/api/schemas/JobRead",
]
