"""kill -9 of the worker, KILLS times, while the public Event Grid clients publish, receive and acknowledge: nothing is
lost, and no event comes again after its acknowledgement was answered. Locks are 1 s."""

from __future__ import annotations

import os
import random
import time

from hub_app.dev.worker import Api
from tests.bench import _hub, _lib
from tests.support.event_grid import queue
from tests.support.queue_storm import Storm

KILLS = int(os.environ.get("KILLS", "20"))
EVENTS = int(os.environ.get("EVENTS", str(400 * KILLS)))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))


def main() -> None:
    draw = random.Random(SEED)
    _lib.progress(f"SEED={SEED} KILLS={KILLS} EVENTS={EVENTS}")
    with _hub.bench() as bench:
        settings = {"queue_lock_min": "1s", "instance_id": "one", "pull_rate": "100000", "pull_burst": "100000"}
        worker = bench.worker(f"{_hub.new_source()}.", env="local", **settings).start().wait_ready()
        api = Api(worker.url).tenant("acme")
        sink = {"receiveLockDurationInSeconds": 1, "maxDeliveryCount": 10}
        api.call("POST", "/v1/subscriptions", queue("orders", "storm", **sink))
        storm = Storm(worker.url, "acme", api.key, "orders", "storm", total=EVENTS, receivers=3)
        storm.pause_s = 0.05
        storm.start()
        for number in range(KILLS):
            time.sleep(draw.uniform(0.3, 2.0))
            worker.kill()
            worker.start().wait_ready()
            _lib.progress(
                f"kill {number + 1}: {len(storm.published)} published, {len(storm.acknowledged)} acknowledged"
            )
        finished = storm.finish(180)
        bench.end_workers()
    _lib.report(
        lost=len(storm.lost),
        repeated_after_acknowledgement=len(storm.repeated),
        finished=finished,
        events=len(storm.published),
        acknowledged=len(storm.acknowledged),
        kills=KILLS,
        seed=SEED,
    )


if __name__ == "__main__":
    main()
