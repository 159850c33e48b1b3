"""What a clock that was ahead has left behind: times that would not come for as long as it was wrong.

Rules:
- a row was written ahead where it says a time of its writing that has not come; no other is touched;
- what waits for a time looks again now, and waits anew if it has to; what comes by the calendar gets its next
  time by the clock as it is; nothing is done twice for that;
- each table has a transaction of its own.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from app.db import Database
from app.figures.rows import Figure
from app.figures.sums import Name
from app.jobs.running.runner import survive
from app.jobs.service import wake_ahead
from app.outbox.rows import DeliveryState, Webhook, WebhookDelivery, WebhookExpectation
from app.outbox.writing import GIVE_UP_AFTER
from app.replication.rows import Agreement
from app.stores.checks.rows import StoreHealth
from app.sweeps.tick import reckon_ahead

SLACK: Final = timedelta(minutes=1)
"""By which the clocks of instances may differ."""
REST_MAX: Final = timedelta(days=1)
"""Of a webhook: its receiver may ask for it."""
EXPECTATIONS_MAX: Final = 20_000


def reckon_anew(database: Database) -> bool:
    """Bring in line with the metadata's clock what was written while it was ahead; whether all of it is.

    One table that cannot be keeps no other from it, and no schedule from coming.
    """
    done = [survive(partial(_reckoned, database, act), "metadata away") for act in _ACTS]
    return all(done)


def _reckoned(database: Database, act: Callable[[Session, datetime], None]) -> bool:
    with database.transaction() as db:
        act(db, database.now(db))
    return True


def _wake_jobs(db: Session, now: datetime) -> None:
    wake_ahead(db, now=now, slack=SLACK)


def _reckon_ticks(db: Session, now: datetime) -> None:
    reckon_ahead(db, now=now, slack=SLACK)


def _forget_checks(db: Session, now: datetime) -> None:
    """A look that has not been yet says nothing: the store is looked at now."""
    ahead = or_(col(StoreHealth.checked_at) > now + SLACK, col(StoreHealth.due_at) > now + REST_MAX)
    db.execute(update(StoreHealth).where(ahead).values(checked_at=None, stale_at=None, due_at=now))


def _send_deliveries(db: Session, now: datetime) -> None:
    """Hooks before deliveries, as by all who lock both."""
    db.execute(
        update(Webhook).where(col(Webhook.rest_until) > now + REST_MAX + SLACK).values(rest_until=None)
    )
    ahead = or_(col(WebhookDelivery.created_at) > now + SLACK, col(WebhookDelivery.last_at) > now + SLACK)
    db.execute(
        update(WebhookDelivery)
        .where(
            col(WebhookDelivery.state) == DeliveryState.PENDING,
            col(WebhookDelivery.next_at) > now,
            col(WebhookDelivery.lease).is_(None),
            ahead,
        )
        .values(next_at=now, give_up_at=now + GIVE_UP_AFTER)
        .execution_options(synchronize_session=False)
    )


def _expect_again(db: Session, now: datetime) -> None:
    """A success that has not been yet counts from now."""
    ahead = select(WebhookExpectation).where(col(WebhookExpectation.last_success_at) > now + SLACK)
    locked = ahead.order_by(col(WebhookExpectation.webhook_id)).limit(EXPECTATIONS_MAX).with_for_update()
    for row in db.exec(locked).all():
        row.last_success_at, row.due_at = now, now + row.within
        db.add(row)


def _succeeded_now(db: Session, now: datetime) -> None:
    """What fails from now on is no longer hidden by a success that has not been yet."""
    ahead = (col(Figure.name) == Name.LAST_SUCCESS.value, col(Figure.at) > now + SLACK)
    db.execute(update(Figure).where(*ahead).values(at=now, value=now.timestamp()))


def _try_agreements(db: Session, now: datetime) -> None:
    ahead = or_(col(Agreement.last_started_at) > now + SLACK, col(Agreement.last_ended_at) > now + SLACK)
    db.execute(update(Agreement).where(ahead).values(next_at=None, last_started_at=now, last_ended_at=now))


_ACTS: Final[tuple[Callable[[Session, datetime], None], ...]] = (
    _wake_jobs,
    _reckon_ticks,
    _forget_checks,
    _send_deliveries,
    _expect_again,
    _succeeded_now,
    _try_agreements,
)
