"""Examples of webhooks and deliveries, for the OpenAPI document."""

from typing import Any, Final

_HOOK: Final[dict[str, Any]] = {
    "id": "whk_01m84ha23epzckc8xnm1sadbrk",
    "url": "https://alerts.example/lethe",
    "description": "",
    "events": ["lethe.job.ended", "lethe.success.overdue"],
    "stores": ["shop"],
    "labels": {},
    "waits_longer_than": None,
    "expected": [
        {
            "store": "shop",
            "kind": "PURGE",
            "within": "P2D",
            "last_success_at": "2026-11-20T10:54:41.100000Z",
            "overdue": False,
        }
    ],
    "secret": None,
    "former_secret_until": None,
    "clear_text_on_loopback": False,
    "ca_file": None,
    "enabled": True,
    "disabled_because": None,
    "failures": 0,
    "rests_until": None,
    "delivered": 17,
    "failed": 1,
    "given_up": 0,
    "created_at": "2026-11-20T10:54:39.100000Z",
    "updated_at": "2026-11-20T10:54:39.100000Z",
}
_DELIVERY: Final[dict[str, Any]] = {
    "id": "dlv_01m84hack5b827jt40ntmz1be4",
    "webhook_id": "whk_01m84ha23epzckc8xnm1sadbrk",
    "event_id": "evt_01m84h2s1hn6w5cf3e1eetrk61",
    "type": "lethe.job.ended",
    "store": "shop",
    "state": "DELIVERED",
    "attempts": 1,
    "created_at": "2026-11-20T10:54:41.100000Z",
    "next_attempt_at": None,
    "gives_up_at": "2026-11-25T10:54:41.100000Z",
    "last_attempt_at": "2026-11-20T10:54:41.200000Z",
    "last_status": 204,
    "last_error": None,
    "ended_at": "2026-11-20T10:54:41.300000Z",
}
_EVENT: Final[dict[str, Any]] = {
    "specversion": "1.0",
    "id": "evt_01m84h2s1hn6w5cf3e1eetrk61",
    "source": "lethe",
    "type": "lethe.job.ended",
    "subject": "jobs/job_01m7w9fkm3fr0wmcztj953rhw9",
    "time": "2026-11-20T10:54:41.100000Z",
    "datacontenttype": "application/json",
    "data": {
        "job_id": "job_01m7w9fkm3fr0wmcztj953rhw9",
        "kind": "PURGE",
        "store": "shop",
        "state": "SUCCEEDED",
        "error_code": None,
        "silence_proved": True,
    },
}
EXAMPLES: Final[dict[str, Any]] = {
    "WebhookRead": _HOOK,
    "WebhookCreated": _HOOK | {"signing_secret": "whsec_..."},
    "DeliveryRead": _DELIVERY,
    "DeliveryDetail": _DELIVERY | {"event": _EVENT},
    "ReplayRead": {"replayed": 12, "more": False},
}
