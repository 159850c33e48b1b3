"""A Slony-I node's changes, carried into a replica."""

from app.auth.scopes import Scope
from app.jobs.running.sql_target import prove_silence
from app.slony_feed.models import JOB_FEED, SlonyFeedParams, SlonyFeedRequest, SlonyFeedResult
from app.slony_feed.submitting import submit_feed_child
from app.stores.models import StoreKind
from app.verbs.verb import NOWHERE, Limits, Params, Scopes, Task, Tools, Verb


def _of_its_source(_params: Params) -> Scopes:
    """The rows of the node are read."""
    return frozenset({Scope.DATA_READ})


# -- what runs: its modules are loaded with the first job of the kind


def _feed(_tools: Tools) -> Task:
    from app.slony_feed.task import run_feed

    return run_feed


# -- the rows

FEED = Verb(
    kind=JOB_FEED,
    stores=frozenset({StoreKind.REPLICA}),
    scope=Scope.REPLICATION_WRITE,
    more_scopes=_of_its_source,
    request=SlonyFeedRequest,
    params=SlonyFeedParams,
    result=SlonyFeedResult,
    task=_feed,
    proof=prove_silence,
    limits=Limits.AS_ITS_SOURCE,
    throttled_at=NOWHERE,
    batch=submit_feed_child,
)
