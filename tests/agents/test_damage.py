"""Damaged folders, on real files: found as the folder opens, as its rows are read, or while the shard runs. The folder
is set aside, once, and the shard is rebuilt from its logs. What is no damage sets nothing aside, and every opening that
fails leaves a folder that can be opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from hub_app.domain.errors import StoreFailed
from tables.memory import Memory
from tables.shard import OFFSETS, ShardStore
from tests.agents.test_dispatch_opening import DELIVERIES, Story, Worker, World, play
from tests.fakes.store import Disk
from tests.support import inboxing
from tests.support.damaging import FILES, Damage, flip_tables, garble
from tests.support.dispatching import NAMES, job
from tests.support.inboxing import fact_record

__all__ = ["play"]
FACTS = NAMES.facts


def asides(folder: Path) -> list[str]:
    """Reasons of the folders that lie beside this one."""
    return [path.name.split(".")[1] for path in folder.parent.iterdir() if path.name.startswith(f"{folder.name}.")]


# -- dispatch ----------------------------------------------------------------------------------------------------------
class OnFiles(Worker):
    """A dispatch worker whose stores are real; `root` outlives it."""

    def __init__(self, world: World) -> None:
        self.root = world.folder
        super().__init__(world.log, Disk(), world.folder, world.clock)

    def folder(self, plane: str, number: int) -> Path:
        return self.root / plane / str(number)

    def _open_store(self, folder: Path, *, memory: Any, **more: Any) -> Any:
        store: Any = ShardStore.open(folder, memory=Memory(), **more)
        self.stores.append(store)
        return store

    @property
    def place(self) -> Path:
        return self.folder("dispatch", 0)

    async def leave_rows(self) -> None:
        """A closed folder with rows of two jobs that wait, in table files."""
        self.dispatcher.draining = True
        await self.open()
        self.feed(DELIVERIES, 0)
        for _ in range(2):  # what stands in the write-ahead log becomes table files as it is opened
            await self.shards.closed(0)
            await self.open()
        await self.shards.closed(0)
        self.dispatcher.draining = False

    async def delivers_all(self) -> None:
        self.feed(DELIVERIES, 0)
        await asyncio.sleep(1)
        assert sorted(self.attempted) == [(1, 1), (2, 1)]
        assert self.shard.low_marks()[DELIVERIES] == 2


ROWS: dict[str, Damage] = {
    "job rows": garble("due"),
    "claims": garble("claims", b"k" * 16),
    "an offset": garble(OFFSETS, DELIVERIES.encode()),
    "a mark": garble(OFFSETS, b"\0schema"),
}


@pytest.mark.parametrize("damage", (FILES | ROWS).values(), ids=FILES | ROWS)
def test_a_damaged_dispatch_folder_is_set_aside_as_it_opens(
    play: Callable[[Story], None], tmp_path: Path, damage: Damage
) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1), job(2))
        worker = OnFiles(world)
        await worker.leave_rows()
        damage(worker.place)
        await worker.open()
        assert asides(worker.place) == ["damaged"]
        assert worker.metrics.set_aside.labels("dispatch", "damaged").value == 1
        await worker.delivers_all()
        await worker.shards.closed(0)
        await worker.open()
        assert asides(worker.place) == ["damaged"]

    play(story)


def test_damage_that_shows_while_a_dispatch_shard_runs_has_it_opened_again(play: Callable[[Story], None]) -> None:
    """Whoever finds it: here a page of the API, which knows nothing of shards."""

    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1), job(2))
        worker = OnFiles(world)
        await worker.leave_rows()
        worker.dispatcher.draining = True
        await worker.open()
        batch = worker.shard.table.store.batch()
        batch.put("history", b"sub\x1f" + bytes(15), b"nothing")
        worker.shard.table.store.write(batch)
        with pytest.raises(StoreFailed) as found:
            worker.shard.history.newest("sub", b"", limit=10)
        assert found.value.damaged
        assert (worker.reopened, asides(worker.place)) == ([], [])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (worker.reopened, asides(worker.place)) == ([0], ["damaged"])
        worker.shards.store_failed(0, found.value)
        assert worker.reopened == [0]
        await worker.shards.closed(0)
        worker.dispatcher.draining = False
        await worker.open()
        await worker.delivers_all()

    play(story)


@pytest.mark.parametrize("where", ["end_offsets", "read_range", "offset_for_time", "health", "on_opened", "full"])
def test_an_opening_that_fails_for_something_else_sets_nothing_aside(play: Callable[[Story], None], where: str) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1), job(2))
        worker = OnFiles(world)
        await worker.leave_rows()
        failing = [True]

        def fail(*_: object) -> None:
            if failing:
                raise StoreFailed("dispatch/0", "No space left") if where == "full" else ConnectionError("away")

        async def fail_later(*_: object) -> None:
            fail()

        if where == "health":
            worker.shards._read_health = fail_later
        elif where in ("on_opened", "full"):
            worker.shards._on_opened = fail
        else:
            worker.shards._attempts._reader = worker.shards._reader = cast("Any", Away(worker.reader, where, failing))
        with pytest.raises((ConnectionError, StoreFailed)):
            await worker.open()
        assert worker.shards.shards == {}
        await worker.shards.closed(0)
        failing.clear()
        await worker.open()
        assert asides(worker.place) == []
        await worker.delivers_all()

    play(story)


class Away:
    """A reader of which one call fails."""

    def __init__(self, reader: Any, name: str, failing: list[bool]) -> None:
        self._reader, self._name, self._failing = reader, name, failing

    def __getattr__(self, name: str) -> Any:
        if name == self._name and self._failing:
            raise ConnectionError("away")
        return getattr(self._reader, name)


def test_what_was_in_hand_is_noted_in_the_rebuilt_folder_too(play: Callable[[Story], None]) -> None:
    """The claim file was read once; the folder that had taken its claims in is set aside after that."""

    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1), job(2))
        worker = OnFiles(world)
        worker.takes_s = 3_600
        await worker.open()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(0.1)
        assert worker.attempted == [(1, 1)]
        worker.die()
        next_one = OnFiles(world)
        assert len(next_one.shards._left[0]) == 1
        garble("due")(next_one.place)
        await next_one.open()
        assert asides(next_one.place) == ["damaged"]
        assert len(next_one.shard.foreign) == 1

    play(story)


# -- inbox -------------------------------------------------------------------------------------------------------------
class InboxOnFiles(inboxing.World):
    def __init__(self, root: Path) -> None:
        self.root = root
        super().__init__()
        self.subscriptions.rows["t"] = [inboxing.Sub("sub_1")]

    def folder(self, plane: str, number: int) -> Path:
        return self.root / plane / str(number)

    def _open_store(self, folder: Path, *, memory: Any, **more: Any) -> Any:
        store = ShardStore.open(folder, memory=Memory(), **more)
        self.stores.append(store)
        return store

    @property
    def place(self) -> Path:
        return self.folder("inbox", 0)

    async def leave_rows(self) -> None:
        await self.open()
        await self.take(fact_record(0), fact_record(1, id="other"))
        for _ in range(2):
            await self.shards.closed(0)
            await self.open(committed=2)
        await self.shards.closed(0)


@pytest.fixture
async def inbox(tmp_path: Path) -> InboxOnFiles:
    made = InboxOnFiles(tmp_path)
    await made.leave_rows()
    return made


INBOX_ROWS: dict[str, Damage] = {
    "an offset": garble(OFFSETS, FACTS.encode()),
    "a generation": garble(OFFSETS, b"\0inbox-generation"),
    "a mark": garble(OFFSETS, b"\0epoch"),
}


@pytest.mark.parametrize("damage", (FILES | INBOX_ROWS).values(), ids=FILES | INBOX_ROWS)
async def test_a_damaged_inbox_folder_is_set_aside_as_it_opens(inbox: InboxOnFiles, damage: Damage) -> None:
    damage(inbox.place)
    assert await inbox.open(committed=2) == 0
    assert asides(inbox.place) == ["damaged"]
    assert inbox.epochs[0] == 0
    await inbox.take(fact_record(0), fact_record(1, id="other"), fact_record(2, id="third"))
    table = inbox.inbox.shards[0].table
    assert [fact is not None for fact in table.facts([0, 1, 2])] == [True] * 3
    await inbox.shards.closed(0)
    assert await inbox.open(committed=3) == 3
    assert asides(inbox.place) == ["damaged"]


@pytest.mark.parametrize("family", ["ids_0", "events", "index"])
async def test_rows_of_no_sense_are_found_by_whoever_reads_them(inbox: InboxOnFiles, family: str) -> None:
    used = "ids_1" if family == "ids_0" and not rows_of(inbox.place, "ids_0") else family
    garble(used)(inbox.place)
    await inbox.open(committed=2)
    table = inbox.inbox.shards[0].table
    if family == "ids_0":
        await inbox.take(fact_record(2))
        [_, (_, error)] = inbox.answers
        assert isinstance(error, StoreFailed)
    else:
        with pytest.raises(StoreFailed) as caught:
            table.facts([0]) if family == "events" else table.events_after("t", -1, limit=9, bytes_max=1 << 20)
        error = caught.value
    assert error.damaged
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (inbox.reopened, asides(inbox.place)) == ([0], ["damaged"])
    await inbox.shards.closed(0)
    assert await inbox.open(committed=2) == 0


def rows_of(folder: Path, family: str) -> bool:
    try:
        garble(family)(folder)
    except AssertionError:
        return False
    return True


async def test_a_batch_that_meets_damage_fails_and_the_shard_is_rebuilt(inbox: InboxOnFiles) -> None:
    """Blocks that nothing had to read before."""
    await inbox.open(committed=2)
    flip_tables(inbox.place)
    await inbox.take(fact_record(2))  # identities may be cached; facts are not
    with pytest.raises(StoreFailed):
        inbox.inbox.shards[0].table.facts([0, 1])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asides(inbox.place) == ["damaged"]


@pytest.mark.parametrize("where", ["owner", "queues", "epoch"])
async def test_an_inbox_opening_that_fails_for_something_else_sets_nothing_aside(
    inbox: InboxOnFiles, where: str
) -> None:
    end = 1_000
    if where == "owner":
        inbox.owner.failure = ConnectionError("away")
    elif where == "epoch":
        inbox.epoch_failure, end = ConnectionError("away"), 1
    else:
        inbox.shards._queues = cast("Any", Broken())
    with pytest.raises(ConnectionError):
        await inbox.open(committed=min(2, end), end=end)
    inbox.owner.failure = inbox.epoch_failure = None
    inbox.shards._queues = cast("Any", inboxing.NoQueues())
    assert await inbox.open(committed=2) == 2
    assert asides(inbox.place) == []


class Broken(inboxing.NoQueues):
    async def open(self, shard: Any) -> Any:
        raise ConnectionError("away")
