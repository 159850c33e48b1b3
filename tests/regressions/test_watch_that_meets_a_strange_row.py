"""One job whose row this version cannot read, as a newer one may write it beside us, ended the look at all:
long polls and streams of every other job heard nothing more until the process was started anew.
"""

from __future__ import annotations

import asyncio

from app.jobs.watch import JobWatch
from tests.app.jobs.workbench import Workbench

HEARD_WITHIN_S = 5.0


def test_the_other_jobs_are_heard_of(bench: Workbench) -> None:
    strange, plain = bench.submit(), bench.submit()

    async def listen() -> str:
        watch = JobWatch(bench.database, interval_s=0.05, waiters_max=10)
        await watch.start()
        try:
            async with watch.waiting(strange), watch.waiting(plain) as waiter:
                first = await asyncio.wait_for(waiter.queue.get(), HEARD_WITHIN_S)
                assert first is not None
                await asyncio.to_thread(bench.set, strange, state="OF_A_NEWER_VERSION", version=99)
                await asyncio.sleep(0.5)
                await asyncio.to_thread(bench.set, plain, state="PAUSED", version=99)
                change = await asyncio.wait_for(waiter.queue.get(), HEARD_WITHIN_S)
                assert change is not None
                return str(change.job.state)
        finally:
            await watch.close()

    assert asyncio.run(listen()) == "PAUSED"
