"""`make demo`: from nothing to a balanced account of every fact, and nothing left behind."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from hub_app.dev.demo import commands, stage
from hub_app.dev.demo.cast import Cast, Kafka, cast_for, kafka_for, topics_for
from hub_app.dev.demo.logs import Clerk, Reader
from hub_app.dev.demo.plan import Plan
from hub_app.dev.demo.reckoning import Books, Check, reckon
from hub_app.dev.demo.view import View, summary
from hub_app.dev.demo.watch import Watcher
from hub_app.dev.facts import topic_of
from hub_app.dev.kafka import External
from hub_app.dev.kafka.jars import cache_home
from hub_app.topics import Names, names

LOG_LINES = 15
TIER = "1s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`seconds`: how long the producer takes; all must be finished `patience` seconds after it began, or it is counted
    as it stands. `skip`: a loss to plant, see `sink.Endpoint`."""

    facts: int = 3_000
    seconds: float = 15.0
    patience: float = 60.0
    skip: int = 0


def demo(options: Options, console: Console) -> int:
    """0 when every check holds, 1 when not. DemoFailed, KafkaUnavailable and BrokerFailed when it could not be tried.
    However it ends, no process and no data are left."""
    with tempfile.TemporaryDirectory(prefix="hub-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            checks = _play(options, console, folder)
        except Exception:
            _show_logs(console, folder)
            _keep_logs(console, folder)
            raise
        failed = not all(check.ok for check in checks)
        if failed:
            _keep_logs(console, folder)
    return int(failed)


def _play(options: Options, console: Console, folder: Path) -> list[Check]:
    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    run = stage.new_run()
    with kafka_for(folder, say) as kafka, topics_for(kafka, run, options.facts) as (plan, topics):
        say(f"starting {stage.WORKERS} hub workers and a sink")
        with cast_for(kafka, topics, folder, skip=options.skip) as cast:
            endpoints = stage.subscribe(cast.urls(), cast.sink)
            say(f"{len(endpoints)} subscriptions made and verified; {len(plan.records)} records are being published")
            books = asyncio.run(_account(options, console, plan, cast, kafka, topics, endpoints))
        checks = reckon(books)
        _look(console, kafka, topics)
    summary(console, checks)
    return checks


async def _account(
    options: Options,
    console: Console,
    plan: Plan,
    cast: Cast,
    kafka: Kafka,
    topics: Names,
    endpoints: dict[str, str],
) -> Books:
    """Publishes, watches until all is done, ends the workers, and only then closes the books."""
    expected = {path: len(events) for path, events in plan.expected().items()}
    clerk = Clerk(topics, map(topic_of, plan.sources), endpoints)
    async with Reader(kafka.bootstrap, clerk) as reader:
        watcher = Watcher(
            workers=cast.urls(), sink=cast.sink.url, reader=reader, records=len(plan.records), expected=expected
        )
        cast.publish(kafka.bootstrap, plan, options.seconds)
        view = View(console)
        with view:
            sight = await watcher.until_finished(view.show, cast.check, options.patience)
        view.last(sight)
        statuses = await asyncio.to_thread(cast.end_workers)
        await reader.read_to_end()
        return Books(
            plan, reader.ledger, {path: cast.sink.delivered(path) for path in expected}, cast.sink.stats(), statuses
        )


def _look(console: Console, kafka: Kafka, topics: Names) -> None:
    """Looks into two topics with Kafka's own tools, and says how to look into all."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for look in commands.looks(topics, TIER)[:2]:
        say(f"\n{look.what}\n$ {commands.typed(look, kafka.bootstrap)}")
        for line in commands.run(kafka, look):
            say(f"    {line}")
    where = kafka.bootstrap if isinstance(kafka, External) else None
    say(f"\n{'These topics go' if where else 'This Kafka goes'} with the demo. While `make up` runs:")
    for look in commands.looks(names("hub."), TIER):
        say(f"  # {look.what}\n  {commands.typed(look, where)}")
    say("")


def _show_logs(console: Console, folder: Path) -> None:
    """How each log ends."""
    for log in sorted(folder.glob("*.log")):
        if tail := log.read_text(errors="replace").splitlines()[-LOG_LINES:]:
            console.print(f"-- the end of {log.name}", *tail, sep="\n", markup=False, highlight=False, soft_wrap=True)


def _keep_logs(console: Console, folder: Path) -> None:
    """The logs outlive the run that went wrong."""
    kept = cache_home() / "demo-logs"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)
    console.print(f"logs are kept in {kept}", markup=False, highlight=False, soft_wrap=True)
