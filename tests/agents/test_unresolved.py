"""A name that does not resolve is a failure like another: tried again at its tier, delivered when the name is back."""

from __future__ import annotations

from pathlib import Path

from hub_app.domain.limits import SECOND_MS
from tests.fakes.sender import accepts, fails
from tests.support.dispatch_bench import Worker, World, play, until
from tests.support.dispatching import RETRY, job


def test_row_18_a_name_that_does_not_resolve_is_tried_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world, workers=2).start()
        worker.put(world.subscription())
        world.sender.sink = fails("dns", "no such name")
        world.deliver(job(1, received_at_ms=world.clock.now_ms()))
        await until(lambda: world.traffic()[RETRY] == 1, 5)
        [failed] = world.told()
        assert (failed.kind.value, failed.job.attempt, failed.status) == ("failed", 1, None)
        assert failed.error.startswith("dns")
        world.sender.sink = accepts
        world.leap(10 * SECOND_MS)
        await until(lambda: world.outcomes() == ["failed", "delivered"], 10)
        assert [outcome.job.attempt for outcome in world.told()] == [1, 2]

    play(tmp_path, story)
