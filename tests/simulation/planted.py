"""Faults to be planted in workers of the simulation: each must be found, else the simulation is too weak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.dispatch_shard import DispatchShard
from agents.settle import Settler
from hub_app.domain.delivery import Deferred, version
from tests.simulation.dispatch_worker import DispatchWorker
from tests.simulation.inbox_world import InboxWorker


def outcome_first(worker: DispatchWorker) -> None:
    """The outcome is recorded before the record that carries the job on."""
    settler: Any = worker.settler
    settler._carry_on, settler._record = settler._record, settler._carry_on


def forget_early(worker: DispatchWorker) -> None:
    """The table forgets a job before anything of its outcome is written."""
    settler: Any = worker.settler
    carry_on = settler._carry_on

    async def forget_then_carry_on(tick: Any) -> None:
        if not getattr(tick, "forgotten", False):
            tick.forgotten = True
            Settler._forget(settler, tick)
        await carry_on(tick)

    settler._carry_on, settler._forget = forget_then_carry_on, lambda tick: None


def commit_read(worker: DispatchWorker) -> None:
    """What was read is committed, not what is finished."""
    shards: Any = worker.shards
    commit = shards._commit

    def positions(moved: dict[tuple[str, int], int]) -> None:
        commit({(topic, number): shards.shards[number].low[topic].position() for topic, number in moved})

    shards._commit = positions


def defer_ends(worker: DispatchWorker) -> None:
    """An attempt that was not charged ends it."""
    settler: Any = worker.settler
    settle = settler._settle

    def ends(shard: DispatchShard, batch: Any, settled: Any) -> Any:
        if isinstance(settled.step, Deferred):
            return shard.settle(batch, settled.row, version(settled.row.job))
        return settle(shard, batch, settled)

    settler._settle = ends


def claims_unflushed(worker: DispatchWorker) -> None:
    """A shard is handed over before its claims are in the log."""

    async def at_once() -> None:
        return

    settler: Any = worker.settler
    settler.flushed = at_once


def _on_every_shard(worker: DispatchWorker, change: Callable[[Any], None]) -> None:
    shards: Any = worker.shards
    read_outcomes = shards._read_outcomes

    async def changed(shard: DispatchShard, waiting: Any) -> None:
        change(shard)
        await read_outcomes(shard, waiting)

    shards._read_outcomes = changed


def no_foreign_claims(worker: DispatchWorker) -> None:
    """What somebody else has in hand is attempted at once."""

    def change(shard: Any) -> None:
        shard.note_claim = lambda batch, delivery_id, claim: False

    _on_every_shard(worker, change)


def outcomes_unread(worker: DispatchWorker) -> None:
    """Outcomes in the log end nothing."""

    def change(shard: Any) -> None:
        shard.apply_outcomes = lambda batch, outcomes: []

    _on_every_shard(worker, change)


def one_source_each(worker: DispatchWorker) -> None:
    """Of two equal records only the first holds the low-water mark."""

    def change(shard: Any) -> None:
        meet = shard._meet

        def first_only(batch: Any, known: Any, job: Any, source: Any, *more: Any) -> None:
            meet(batch, known, job, source, *more)
            if known.job == job and len(known.sources) > 1:
                known.sources = known.sources[:1]

        shard._meet = first_only

    _on_every_shard(worker, change)


def blind_refill(worker: DispatchWorker) -> None:
    """What lies behind the heads is forgotten."""
    heads: Any = worker.dispatcher.heads

    def nothing(shard: Any, place: Any, waiting: Any) -> list[Any]:
        waiting.more = False
        return []

    heads._look_behind = nothing


def endless_heads(worker: DispatchWorker) -> None:
    """Nothing goes back from memory to the table."""
    heads: Any = worker.dispatcher.heads
    heads._shed = lambda shard, waiting: None


def greedy(worker: DispatchWorker) -> None:
    """One destination may have all workers."""
    scheduler: Any = worker.dispatcher.heads.scheduler
    scheduler.half = scheduler._window_min = scheduler.workers


def no_lease(worker: DispatchWorker) -> None:
    """Claims go on when the lease has ended."""
    dispatcher: Any = worker.dispatcher
    dispatcher._lease_valid = lambda now_ms: True


PLANTED: dict[str, Callable[[DispatchWorker], None]] = {
    fault.__name__: fault
    for fault in (
        outcome_first,
        forget_early,
        commit_read,
        defer_ends,
        claims_unflushed,
        no_foreign_claims,
        outcomes_unread,
        one_source_each,
        blind_refill,
        endless_heads,
        greedy,
        no_lease,
    )
}


# -- the inbox ---------------------------------------------------------------------------------------------------------
def commit_first(worker: InboxWorker) -> None:
    """The offset is committed before the outputs are acknowledged."""
    inbox: Any = worker.inbox
    judge = inbox._judge

    async def done_then_judge(shard: Any, batch: Any, outputs: Any) -> Any:
        worker.plane.commit({(batch.topic, batch.shard): batch.next_offset})
        return await judge(shard, batch, outputs)

    inbox._judge = done_then_judge


def emit_nothing_again(worker: InboxWorker) -> None:
    """What this folder has seen is not emitted again, although it is not committed."""
    _when_opened(worker, lambda shard, own: max(shard.emit_from, own))


def emit_everything_again(worker: InboxWorker) -> None:
    """A rebuild emits what is committed."""
    _when_opened(worker, lambda shard, own: 0)


def _when_opened(worker: InboxWorker, emit_from: Callable[[Any, int], int]) -> None:
    shards: Any = worker.shards
    opened = shards.opened

    async def changed(number: int, committed: Any, begin: Any, end: Any) -> Any:
        starts = await opened(number, committed, begin, end)
        shard = shards._inbox.shards[number]
        shard.emit_from = emit_from(shard, shard.table.store.offset(shards._names.facts) or 0)
        return starts

    shards.opened = changed


def forgetful(worker: InboxWorker) -> None:
    """A fact is emitted, and its offset stored, but not its identity."""
    inbox: Any = worker.inbox
    remember = inbox._remember
    inbox._remember = lambda shard, batch, admitted, given: remember(shard, batch, [], given)


def one_epoch(worker: InboxWorker) -> None:
    """A topic that was made anew goes on with the old seqs."""

    async def nothing(shard: int, reason: str) -> None:
        return

    shards: Any = worker.shards
    shards._raise_epoch = nothing


PLANTED_IN_INBOX: dict[str, Callable[[InboxWorker], None]] = {
    fault.__name__: fault for fault in (commit_first, emit_nothing_again, emit_everything_again, forgetful, one_epoch)
}
