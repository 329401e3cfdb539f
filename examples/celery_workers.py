"""Share one limit between workers that take tasks from a queue, as those of Celery do.

Four processes, each with a limiter of its own, work off 200 tasks at fifty a second in all. The
limit is kept in a file, or in Redis if `REDIS_URL` names one: `redis://localhost:6379/0`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from multiprocessing import get_context

WORKERS = 4
TASKS = 200
#: Nearly all that the limit allows is used, and at least this much where the machine itself stands
#: still for seconds: what comes in while the bucket is full is lost.
ENOUGH = 0.5
#: A file counts by the wall clock, which may be adjusted a little meanwhile.
CLOCK_ERROR = 0.001


def main() -> None:
    """Run all tasks and check how fast they went."""
    # Like the workers, it asks for the storage when it is imported.
    from apps import celery_tasks as tasks  # noqa: PLC0415

    # An earlier run may have used the limit in this Redis. The workers set it anew.
    tasks.limiter.clear(tasks.API)
    # Celery's own pool descends from this one. A spawned worker inherits nothing: it imports.
    with get_context("spawn").Pool(WORKERS) as pool:
        # A task that is lost is a TimeoutError.
        done = pool.map_async(tasks.fetch, range(TASKS), chunksize=1).get(timeout=60)
        # Let the workers end by themselves.
        pool.close()
        pool.join()
    tasks.limiter.clear(tasks.API)

    seconds = max(task.granted for task in done) - min(task.taken for task in done)
    # A full bucket at once, and then what comes in.
    allowed = tasks.LIMIT + tasks.LIMIT * seconds
    used = TASKS / allowed
    workers = Counter(task.worker for task in done)
    print(f"{TASKS} tasks in {seconds:.2f} s, which is {used:.1%} of what the limit allows")
    print("tasks by worker:", dict(workers))

    if [task.item for task in done] != list(range(TASKS)):
        sys.exit("not every task was done once")
    if used > 1 + CLOCK_ERROR:
        sys.exit("the limit was overrun")
    if used < ENOUGH:
        sys.exit("too little of the limit was used")
    if len(workers) == 1:
        sys.exit("one worker did all tasks, so nothing was shared")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STORAGE"] = os.environ.get("REDIS_URL") or f"sqlite:///{folder}/limits.db"
        main()
