"""The routers of the API, in the order in which a request is matched with them."""

from app.archives.api import router as archives_router
from app.audit.api import router as chain_router
from app.auth.api import router as auth_router
from app.backups.api import router as backups_router
from app.erase.api import router as erase_router
from app.erase.certificates.api import router as certificates_router
from app.events.api import router as events_router
from app.events.cleanup.api import router as cleanups_router
from app.events.cleanup.switch.api import router as switches_router
from app.events.feed.api import router as slony_feed_router
from app.events.health.api import router as health_router
from app.events.looks_api import router as looks_router
from app.events.preconditions.api import router as preconditions_router
from app.events.syncs.api import router as syncs_router
from app.events.waits.api import router as waits_router
from app.extinction.api import router as extinction_router
from app.extinction.attest_api import router as attest_router
from app.extinction.forget_api import router as forget_router
from app.extinction.log_api import router as extinction_log_router
from app.fleet.api import router as fleet_router
from app.fleet.events_api import router as fleet_events_router
from app.hooks.api import router as webhooks_router
from app.hooks.deliveries_api import router as deliveries_router
from app.jobs.abandon_api import router as abandon_router
from app.jobs.api import router as jobs_router
from app.jobs.batches.api import router as batch_router
from app.jobs.engines.spark_api import router as spark_router
from app.jobs.throttle_api import router as throttle_router
from app.parameters.api import router as parameters_router
from app.protection.abort_api import router as abort_router
from app.protection.api import router as protection_router
from app.purge.api import router as purge_router
from app.purge.backlog.api import router as backlog_router
from app.replication.agreements.api import router as agreements_router
from app.replication.agreements.compare_api import router as compare_router
from app.replication.agreements.sessions.api import router as replication_sessions_router
from app.replication.audits.api import router as audits_router
from app.replication.audits.digests_api import router as digests_router
from app.replication.consumer.api import router as replicas_router
from app.replication.consumer.dead_letters.api import router as dead_letters_router
from app.replication.consumer.discards.api import router as discard_router
from app.replication.consumer.keys.api import router as known_keys_router
from app.replication.decide.api import router as replication_router
from app.replication.ds389.api import router as ds389_router
from app.replication.feed.api import router as change_feed_router
from app.replication.feed.history_api import router as history_router
from app.replication.replica.changes_api import router as changes_router
from app.replication.replica.entries_api import router as entries_router
from app.replication.replica.entry_writes_api import router as entry_writes_router
from app.replication.snapshots.api import router as snapshots_router
from app.replication.supplier.clock_api import router as clock_router
from app.replication.topology.api import router as topology_router
from app.replication.trimming.api import router as trimming_router
from app.schedules.api import router as schedules_router
from app.schedules.windows.api import router as windows_router
from app.secrets.api import router as secrets_router
from app.slony_feed.api import router as replica_feeds_router
from app.stores.api import router as stores_router
from app.stores.check_api import router as store_checks_router
from app.stores.parameters_api import router as store_parameters_router

# Those that are asked most come first: of one group a request is matched with one after the other.
ROUTERS = (
    jobs_router,
    stores_router,
    store_checks_router,
    store_parameters_router,
    purge_router,
    backlog_router,
    erase_router,
    certificates_router,
    extinction_router,
    attest_router,
    forget_router,
    extinction_log_router,
    archives_router,
    protection_router,
    abort_router,
    backups_router,
    replication_router,
    trimming_router,
    replicas_router,
    digests_router,
    dead_letters_router,
    audits_router,
    snapshots_router,
    replica_feeds_router,
    topology_router,
    changes_router,
    change_feed_router,
    history_router,
    entries_router,
    entry_writes_router,
    agreements_router,
    replication_sessions_router,
    compare_router,
    ds389_router,
    discard_router,
    clock_router,
    known_keys_router,
    events_router,
    looks_router,
    health_router,
    slony_feed_router,
    waits_router,
    preconditions_router,
    cleanups_router,
    switches_router,
    syncs_router,
    batch_router,
    abandon_router,
    throttle_router,
    spark_router,
    schedules_router,
    windows_router,
    parameters_router,
    secrets_router,
    webhooks_router,
    deliveries_router,
    fleet_router,
    fleet_events_router,
    auth_router,
    chain_router,
)
